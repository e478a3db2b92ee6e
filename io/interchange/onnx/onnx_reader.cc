// Reads ONNX's messages by the field numbers of onnx.proto; everything else is skipped.
#include "io/interchange/onnx/onnx_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <unordered_set>
#include <utility>

#include "io/base/files/open_file.h"
#include "io/base/files/system_error_text.h"

namespace io {
namespace {

// TensorProto.DataType; booleans are read as bytes.
std::optional<DType> type_of_onnx(std::int64_t number) {
  switch (number) {
    case 1:
      return DType::kF32;
    case 2:
    case 9:
      return DType::kU8;
    case 6:
      return DType::kI32;
    case 7:
      return DType::kI64;
    case 10:
      return DType::kF16;
    case 11:
      return DType::kF64;
    case 16:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

template <class T>
T& append(std::vector<T>& list, std::size_t max_count, const ProtobufFields& at, const char* what) {
  if (list.size() == max_count) at.fail("more than " + std::to_string(max_count) + " " + what);
  return list.emplace_back();
}

// A name in the model's folder, and nothing else: a path could name any file of the user.
void check_location(const ProtobufFields& at, const std::string& location) {
  if (location.empty() || location == "." || location == ".." ||
      location.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos)
    at.fail("the data of a tensor are in '" + location +
            "'; expected the name of a file beside the model, without folders");
}

std::uint64_t number_of(const ProtobufFields& at, const std::string& key, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    at.fail("external data: " + key + " is '" + text + "', expected a number");
  return value;
}

// The parts of a TensorProto in which its data may be.
struct TensorData {
  std::optional<ByteExtent> raw, floats, doubles, integers;
  bool external = false, has_length = false;
};

void read_external_entry(ProtobufFields entry, StoredTensor& tensor, TensorData& data) {
  std::string key, value;
  while (entry.next()) {
    if (entry.field() == 1) key = entry.text(kMaxOnnxText);
    if (entry.field() == 2) value = entry.text(kMaxOnnxText);
  }
  if (key == "location") check_location(entry, value), tensor.file = value;
  if (key == "offset") tensor.data.offset = number_of(entry, key, value);
  if (key == "length") tensor.data.bytes = number_of(entry, key, value), data.has_length = true;
}

// Chooses the data, and compares their size with shape and type.
void place_data(const ProtobufFields& at, const TensorData& data, StoredTensor& tensor) {
  const std::string who = "tensor '" + tensor.name + "'";
  if (!tensor.type) return;  // a caller that needs it names its type
  std::uint64_t bytes = size_of(*tensor.type);
  for (const std::int64_t extent : tensor.shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes))
      at.fail(who + " has an extent of " + std::to_string(extent) + " or too many elements");
  if (data.external) {
    if (tensor.file.empty()) at.fail(who + " has its data in another file, whose name is missing");
    if (!data.has_length) tensor.data.bytes = bytes;
  } else {
    const bool is_f32 = tensor.type == DType::kF32, is_f64 = tensor.type == DType::kF64;
    std::optional<ByteExtent> found = data.raw;
    if (!found) found = is_f32 ? data.floats : is_f64 ? data.doubles : data.integers;
    if (!data.raw && !is_f32 && !is_f64) tensor.coding = StoredTensor::Coding::kIntegers;
    tensor.data = found.value_or(ByteExtent{});
  }
  const bool fits = tensor.coding == StoredTensor::Coding::kBytes
                        ? tensor.data.bytes == bytes
                        : tensor.data.bytes >= tensor.count();  // a varint has at least one byte
  if (!fits)
    at.fail(who + " has " + std::to_string(tensor.data.bytes) +
            " bytes of data, its shape and type need " + std::to_string(bytes));
}

StoredTensor read_tensor(ProtobufFields message) {
  StoredTensor tensor;
  TensorData data;
  while (message.next()) switch (message.field()) {
      case 1:
        message.append_integers(tensor.shape, kMaxOnnxDimensions);
        break;
      case 2:
        tensor.type_number = message.integer();
        break;
      case 3:
        message.fail("a tensor in segments");
      case 4:
        data.floats = message.extent();
        break;
      case 5:
      case 7:
        data.integers = message.extent();
        break;
      case 8:
        tensor.name = message.text(kMaxOnnxText);
        break;
      case 9:
        data.raw = message.extent();
        break;
      case 10:
        data.doubles = message.extent();
        break;
      case 13:
        read_external_entry(message.message(), tensor, data);
        break;
      case 14:
        data.external = message.integer() == 1;
        break;
      default:
        break;
    }
  tensor.type = type_of_onnx(tensor.type_number);
  if (!data.external) tensor.file.clear();
  place_data(message, data, tensor);
  return tensor;
}

ReadAttribute read_attribute(ProtobufFields message) {
  enum Type { kFloat = 1, kInt = 2, kString = 3, kTensor = 4, kFloats = 6, kInts = 7 };
  ReadAttribute attribute;
  std::int64_t type = 0, whole = 0;
  float real = 0;
  std::string text;
  std::vector<std::int64_t> list;
  std::vector<float> reals;
  std::optional<StoredTensor> tensor;
  while (message.next()) switch (message.field()) {
      case 1:
        attribute.name = message.text(kMaxOnnxText);
        break;
      case 2:
        real = message.real32();
        break;
      case 3:
        whole = message.integer();
        break;
      case 4:
        text = message.text(kMaxOnnxText);
        break;
      case 5:
        tensor = read_tensor(message.message());
        break;
      case 8:
        message.append_integers(list, kMaxOnnxParts);
        break;
      case 7:
        message.append_reals(reals, kMaxOnnxParts);
        break;
      case 20:
        type = message.integer();
        break;
      default:
        break;
    }
  if (type == kFloat) attribute.value = real;
  if (type == kInt) attribute.value = whole;
  if (type == kString) attribute.value = std::move(text);
  if (type == kTensor && tensor) attribute.value = *std::move(tensor);
  if (type == kFloats) attribute.value = std::move(reals);
  if (type == kInts) attribute.value = std::move(list);
  return attribute;
}

ReadNode read_node(ProtobufFields message) {
  ReadNode node;
  while (message.next()) switch (message.field()) {
      case 1:
        append(node.inputs, kMaxOnnxParts, message, "inputs of a node") =
            message.text(kMaxOnnxText);
        break;
      case 2:
        append(node.outputs, kMaxOnnxParts, message, "outputs of a node") =
            message.text(kMaxOnnxText);
        break;
      case 3:
        node.name = message.text(kMaxOnnxText);
        break;
      case 4:
        node.type = message.text(kMaxOnnxText);
        break;
      case 5:
        append(node.attributes, kMaxOnnxParts, message, "attributes of a node") =
            read_attribute(message.message());
        break;
      case 7:
        node.domain = message.text(kMaxOnnxText);
        break;
      case 9:
        read_onnx_text(message.message(), kOnnxRule, node.rule);
        read_onnx_text(message.message(), kOnnxScopes, node.scopes);
        read_onnx_text(message.message(), kOnnxCall, node.call);
        break;
      default:
        break;
    }
  if (node.domain == "ai.onnx") node.domain.clear();
  return node;
}

std::vector<std::int64_t> read_shape(ProtobufFields message) {
  std::vector<std::int64_t> shape;
  while (message.next()) {
    if (message.field() != 1) continue;
    std::int64_t& extent = append(shape, kMaxOnnxDimensions, message, "dimensions");
    extent = -1;
    ProtobufFields dimension = message.message();
    while (dimension.next())
      if (dimension.field() == 1) extent = std::max<std::int64_t>(-1, dimension.integer());
  }
  return shape;
}

ReadValue read_value(ProtobufFields message) {
  ReadValue value;
  while (message.next()) {
    if (message.field() == 1) value.name = message.text(kMaxOnnxText);
    if (message.field() != 2) continue;
    ProtobufFields type = message.message();
    while (type.next()) {
      if (type.field() != 1) continue;
      ProtobufFields tensor = type.message();
      while (tensor.next()) {
        if (tensor.field() == 1) value.type_number = tensor.integer();
        if (tensor.field() == 2) value.shape = read_shape(tensor.message());
      }
    }
  }
  return value;
}

void read_graph(ProtobufFields message, OnnxGraph& graph) {
  std::size_t parts = 0;
  while (message.next()) switch (message.field()) {
      case 1: {
        const ReadNode& node = append(graph.nodes, kMaxOnnxNodes, message, "nodes") =
            read_node(message.message());
        parts += node.inputs.size() + node.outputs.size() + node.attributes.size();
        if (parts > kMaxOnnxAllParts)
          message.fail("more than " + std::to_string(kMaxOnnxAllParts) +
                       " inputs, outputs and attributes of nodes");
        break;
      }
      case 5:
        append(graph.constants, kMaxOnnxNodes, message, "tensors") = read_tensor(message.message());
        break;
      case 11:
        append(graph.inputs, kMaxOnnxNodes, message, "inputs") = read_value(message.message());
        break;
      case 12:
        append(graph.outputs, kMaxOnnxParts, message, "outputs") = read_value(message.message());
        break;
      case 13:
        read_folded_from(message.message(), graph.folded_from);
        break;
      case 15:
        message.fail("a sparse tensor; expected dense ones");
      case 16:
        read_onnx_entry(message.message(), graph.metadata, kOnnxSignature);
        break;
      default:
        break;
    }
  // Earlier versions of the format also list constants as inputs.
  std::unordered_set<std::string> constant;
  for (const StoredTensor& tensor : graph.constants) constant.insert(tensor.name);
  std::erase_if(graph.inputs, [&](const ReadValue& v) { return constant.contains(v.name); });
}

void read_opset(ProtobufFields message, OnnxGraph& graph) {
  std::string domain;
  std::int64_t version = 0;
  while (message.next()) {
    if (message.field() == 1) domain = message.text(kMaxOnnxText);
    if (message.field() == 2) version = message.integer();
  }
  if (domain.empty() || domain == "ai.onnx") graph.opset = version;
}

OnnxGraph read_model(ProtobufFields message, const std::string& name) {
  OnnxGraph graph;
  std::string producer, version;
  bool has_graph = false;
  while (message.next()) switch (message.field()) {
      case 2:
        producer = message.text(kMaxOnnxText);
        break;
      case 3:
        version = message.text(kMaxOnnxText);
        break;
      case 7:
        if (std::exchange(has_graph, true)) message.fail("a second graph; expected one");
        read_graph(message.message(), graph);
        break;
      case 8:
        read_opset(message.message(), graph);
        break;
      case 14:
        read_onnx_entry(message.message(), graph.metadata);
        break;
      case 25:
        message.fail("functions of its own; export it with all functions inlined");
      default:
        break;
    }
  graph.producer = producer + (producer.empty() || version.empty() ? "" : " ") + version;
  if (!has_graph) throw DataError(name + ": not an ONNX model, or damaged: it has no graph");
  if (graph.opset < kMinReadOpset || graph.opset > kMaxReadOpset)
    throw DataError(name + ": operator set " + std::to_string(graph.opset) + ", expected " +
                    std::to_string(kMinReadOpset) + " to " + std::to_string(kMaxReadOpset) +
                    "; export it with opset_version=18");
  return graph;
}

// Returns the data of integers that are stored as varints, with the type's size.
std::vector<std::byte> decoded(const ByteSource& bytes, const StoredTensor& tensor, DType type) {
  BufferedBytes buffered(bytes);
  std::vector<std::int64_t> values;
  ProtobufFields::append_packed(buffered, tensor.data, values, tensor.count());
  const std::size_t each = size_of(type);
  if (values.size() != tensor.count())
    throw DataError(bytes.name() + ": tensor '" + tensor.name + "' has " +
                    std::to_string(values.size()) + " numbers, its shape needs " +
                    std::to_string(tensor.count()));
  std::vector<std::byte> data(values.size() * each);
  for (std::size_t i = 0; i < values.size(); ++i)  // little-endian: the low bytes come first
    std::memcpy(data.data() + i * each, &values[i], each);
  return data;
}

// The other file is in the folder of the model, and no link.
std::vector<std::byte> read_external(const std::string& model, const StoredTensor& tensor) {
  const std::string path = (std::filesystem::path(model).parent_path() / tensor.file).string();
  const OpenedFile file = open_regular_file(path, Links::kReject);
  const auto [offset, bytes] = tensor.data;
  if (offset > file.bytes || bytes > file.bytes - offset)
    throw DataError(path + ": tensor '" + tensor.name + "' of " + model + " has " +
                    std::to_string(bytes) + " bytes at " + std::to_string(offset) +
                    ", the file has " + std::to_string(file.bytes));
  std::vector<std::byte> data(bytes);
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t count = pread(file.descriptor.fd(), data.data() + done, bytes - done,
                                static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error("cannot read " + path + ": " + base::system_error_text(errno));
    if (count == 0) throw DataError(path + ": became shorter while it was read");
    done += static_cast<std::size_t>(count);
  }
  return data;
}

}  // namespace

std::uint64_t StoredTensor::count() const {
  std::uint64_t all = 1;
  for (const std::int64_t extent : shape) all *= static_cast<std::uint64_t>(extent);
  return all;
}

OnnxReader::OnnxReader(const std::string& path) : OnnxReader(open_bytes(path)) {}

OnnxReader::OnnxReader(std::unique_ptr<ByteSource> bytes) : bytes_(std::move(bytes)) {
  if (bytes_->size() > kMaxOnnxBytes)
    throw DataError(name() + ": " + std::to_string(bytes_->size()) + " bytes, expected at most " +
                    std::to_string(kMaxOnnxBytes) + " (a limit of Protocol Buffers)");
  BufferedBytes buffered(*bytes_);
  graph_ = read_model({buffered, {0, bytes_->size()}}, name());
}

NamedArray OnnxReader::load(const StoredTensor& tensor) const {
  if (!tensor.type)
    throw DataError(name() + ": tensor '" + tensor.name + "' has ONNX's type " +
                    std::to_string(tensor.type_number) +
                    ", expected f32, f64, f16, bf16, i32, i64, u8 or bool");
  NamedArray array{.name = tensor.name,
                   .section = Section::kParameter,
                   .type = *tensor.type,
                   .shape = tensor.shape,
                   .data = {}};
  if (!tensor.file.empty())
    array.data = read_external(name(), tensor);
  else if (tensor.coding == StoredTensor::Coding::kIntegers)
    array.data = decoded(*bytes_, tensor, *tensor.type);
  else
    array.data = bytes_->bytes(tensor.data.offset, tensor.data.bytes);
  return array;
}

}  // namespace io
