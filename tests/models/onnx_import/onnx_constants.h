// Constants of ONNX graphs that tests make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/base/formats/protobuf_message.h"
#include "io/interchange/onnx_writer.h"
#include "tests/support/array_numbers.h"
#include "tests/support/test_support.h"

namespace onnx_constants {

using Ints = std::vector<std::int64_t>;

using test_support::floats;

inline io::NamedArray scalar(const std::string& name, float value) {
  return floats(name, {}, value);
}

inline io::NamedArray integers(const std::string& name, const Ints& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {.name = name,
          .type = io::DType::kI64,
          .shape = {std::ssize(values)},
          .data = {bytes.begin(), bytes.end()}};
}

// An entry of metadata.
inline base::ProtobufMessage metadata_entry(const std::string& key, const std::string& value) {
  base::ProtobufMessage message;
  message.text(1, key).text(2, value);
  return message;
}

// Adds fields to the graph of a file, e.g. metadata, which save_onnx() does not write: after its
// own, or before them.
inline void add_to_graph(const std::string& path, const base::ProtobufMessage& fields,
                         bool before = false) {
  constexpr int kGraph = 7, kLengthDelimited = 2;
  const std::string file = test_support::read_text(path);
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(file.at(at++));
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < file.size()) {
    const std::size_t begin = at;
    const std::uint64_t tag = varint(), value = varint();
    if ((tag & 7) != kLengthDelimited) continue;
    const std::string_view content = std::string_view(file).substr(at, value);
    at += value;
    if (tag >> 3 != kGraph) continue;
    base::ProtobufMessage graph;
    const std::string more = fields.serialized(), own(content);
    graph.text(kGraph, before ? more + own : own + more);
    return test_support::write_text(path,
                                    file.substr(0, begin) + graph.serialized() + file.substr(at));
  }
}

}  // namespace onnx_constants
