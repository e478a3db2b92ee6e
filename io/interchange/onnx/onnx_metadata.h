// Metadata of an ONNX file: texts by key, which exporters add to the model, the graph, its nodes
// and its values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

#include "io/interchange/onnx/protobuf_fields.h"

namespace io {

inline constexpr std::uint64_t kMaxOnnxMetadata = 1 << 24;  // bytes of a value; longer: left out
inline constexpr std::uint64_t kMaxOnnxKey = 4096;          // bytes of a name or key
inline constexpr std::size_t kMaxOnnxEntries = 100'000;     // limit of kept entries

// Keys that PyTorch's exporter writes with dynamo=True.
inline constexpr const char* kOnnxSignature =  // of the graph: which inputs are parameters
    "pkg.torch.export.ExportedProgram.graph_signature";
inline constexpr const char* kOnnxFoldedFrom =  // of a value: the values that it was computed from
    "pkg.onnxscript.optimizer.folded_from";
inline constexpr const char* kOnnxScopes =  // of a node: the modules that it is in, and its name
    "pkg.torch.onnx.name_scopes";
inline constexpr const char* kOnnxCall =  // of a node: the call of PyTorch that it comes from
    "pkg.torch.onnx.fx_node";
inline constexpr const char* kOnnxRule =  // of a node: the rule that has put it in place of others
    "pkg.onnxscript.rewriter.rule_name";

using OnnxMetadata = std::map<std::string, std::string>;

// Reads a StringStringEntryProto and keeps it if its key is `wanted`; null: any key. An entry whose
// key or value is too long is left out.
void read_onnx_entry(ProtobufFields entry, OnnxMetadata& metadata, const char* wanted = nullptr);

// The same for one key, into `value`.
void read_onnx_text(ProtobufFields entry, const char* wanted, std::string& value);
// Reads a ValueInfoProto: from which other values the exporter has computed it.
void read_folded_from(ProtobufFields message,
                      std::unordered_map<std::string, std::string>& folded_from);

}  // namespace io
