// Reads the ONNX file format, which other programs write. Tensors stay in the file until they are
// asked for. Files are untrusted: the limits are below, and docs/interchange.md lists them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/interchange/onnx/onnx_metadata.h"
#include "io/interchange/onnx/protobuf_fields.h"

namespace io {

inline constexpr std::int64_t kMinReadOpset = 13, kMaxReadOpset = 23;
inline constexpr std::uint64_t kMaxOnnxBytes = 0x7FFF'FFFF;  // limit of Protocol Buffers
inline constexpr std::size_t kMaxOnnxNodes = 100'000;        // limit of nodes and of tensors
inline constexpr std::size_t kMaxOnnxParts = 4096;  // of a node's inputs, outputs, attributes, of
                                                    // the numbers of an attribute
inline constexpr std::size_t kMaxOnnxAllParts = 1'000'000;  // of these in all nodes
inline constexpr std::uint64_t kMaxOnnxText = 4096;         // bytes of a name
inline constexpr std::size_t kMaxOnnxDimensions = 8;

// A tensor whose data are in the file, or in another one beside it.
struct StoredTensor {
  // kBytes: as in memory; kIntegers: as varints, which have to be decoded.
  enum class Coding : std::uint8_t { kBytes, kIntegers };

  std::string name;
  std::optional<DType> type;     // without: a type that no model has, see type_number
  std::int64_t type_number = 0;  // TensorProto.DataType
  std::vector<std::int64_t> shape;
  std::string file;  // name of the other file; "": the model's own
  ByteExtent data;
  Coding coding = Coding::kBytes;

  std::uint64_t count() const;  // number of elements
};

struct ReadAttribute {
  std::string name;
  // std::monostate: a kind that is not read (graphs, lists of texts or tensors).
  std::variant<std::monostate, std::int64_t, float, std::string, std::vector<std::int64_t>,
               std::vector<float>, StoredTensor>
      value;
};

struct ReadNode {
  std::string type, domain, name;            // domain "": ONNX's own
  std::vector<std::string> inputs, outputs;  // "": left out
  std::vector<ReadAttribute> attributes;
  std::string rule, scopes, call;  // kOnnxRule, kOnnxScopes, kOnnxCall; "": none
};

struct ReadValue {
  std::string name;
  std::int64_t type_number = 0;     // TensorProto.DataType; 0: not a tensor
  std::vector<std::int64_t> shape;  // -1: chosen when the model runs
};

struct OnnxGraph {
  std::int64_t opset = 0;
  std::string producer;  // "pytorch 2.15.0"
  std::vector<ReadNode> nodes;
  std::vector<StoredTensor> constants;
  std::vector<ReadValue> inputs, outputs;  // inputs without those that are constants
  OnnxMetadata metadata;                   // of the model, and the graph's kOnnxSignature
  std::unordered_map<std::string, std::string> folded_from;  // kOnnxFoldedFrom, by value
};

class OnnxReader {
 public:
  // Reads everything except the tensors' data. Throws MissingFileError, DataError and Error.
  explicit OnnxReader(const std::string& path);
  explicit OnnxReader(std::unique_ptr<ByteSource> bytes);

  const OnnxGraph& graph() const { return graph_; }
  const std::string& name() const { return bytes_->name(); }
  // Loads a tensor; its size has been compared with its file. Data in another file are read from
  // the model's folder; the file must be a regular one and no link. Throws as the constructor.
  NamedArray load(const StoredTensor& tensor) const;

 private:
  std::unique_ptr<ByteSource> bytes_;
  OnnxGraph graph_;
};

}  // namespace io
