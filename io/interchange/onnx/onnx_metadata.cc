#include "io/interchange/onnx/onnx_metadata.h"

#include <utility>

namespace io {

void read_onnx_entry(ProtobufFields entry, OnnxMetadata& metadata, const char* wanted) {
  const auto short_text = [&](std::uint64_t max_bytes) {
    return entry.extent().bytes <= max_bytes ? entry.text(max_bytes) : std::string();
  };
  std::string key, value;
  while (entry.next()) {
    if (entry.field() == 1) key = short_text(kMaxOnnxKey);
    const bool is_wanted = wanted == nullptr || key.empty() || key == wanted;
    if (entry.field() == 2 && is_wanted) value = short_text(kMaxOnnxMetadata);
  }
  if (key.empty() || (wanted != nullptr && key != wanted)) return;
  if (metadata.size() < kMaxOnnxEntries) metadata[key] = std::move(value);
}

void read_onnx_text(ProtobufFields entry, const char* wanted, std::string& value) {
  OnnxMetadata found;
  read_onnx_entry(entry, found, wanted);
  if (!found.empty()) value = std::move(found.begin()->second);
}

void read_folded_from(ProtobufFields message,
                      std::unordered_map<std::string, std::string>& folded_from) {
  std::string name, sources;
  while (message.next()) {
    if (message.field() == 1) name = message.text(kMaxOnnxKey);
    if (message.field() == 4) read_onnx_text(message.message(), kOnnxFoldedFrom, sources);
  }
  if (!sources.empty() && folded_from.size() < kMaxOnnxEntries)
    folded_from[name] = std::move(sources);
}

}  // namespace io
