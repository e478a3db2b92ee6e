// Options for reading an ONNX file otherwise than as it is.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>

namespace models {

// Height and width of images; kOnnxUnknown: open.
using OnnxSize = std::array<std::int64_t, 2>;

struct OnnxReading {
  // Keys of parameters that are layers of their own, which other layers read.
  std::unordered_set<std::string> apart;
  std::optional<OnnxSize> size{};  // in place of the file's: to find out what depends on it
};

}  // namespace models
