// Constants of ONNX graphs that tests make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/interchange/onnx_file.h"

namespace onnx_constants {

using Ints = std::vector<std::int64_t>;

// The numbers `first`, `first` + 1, ...
inline io::NamedArray floats(const std::string& name, const Ints& shape, float first = 0) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  std::vector<float> values(count);
  for (float& value : values) value = first++;
  const auto bytes = std::as_bytes(std::span(values));
  return {.name = name, .shape = shape, .data = {bytes.begin(), bytes.end()}};
}

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

}  // namespace onnx_constants
