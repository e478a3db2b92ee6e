// Extents of ONNX's shapes, which may be unknown or a multiple of the number of samples, and
// limits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace models {

// Extents that are no numbers: one that is unknown before the run, and a multiple of the number of
// samples, kOnnxUnknown + the multiple.
inline constexpr std::int64_t kOnnxUnknown = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int64_t kOnnxBatch = kOnnxUnknown + 1;

inline constexpr std::int64_t kMaxOnnxExtent = 1 << 30;   // sums of a few do not overflow
inline constexpr std::size_t kMaxOnnxNumbers = 64;        // limit of a list of integers
inline constexpr std::size_t kMaxOnnxComputed = 1 << 20;  // limit of a computed tensor's elements
inline constexpr std::size_t kMaxOnnxAllComputed = 1 << 25;  // of all of them
inline constexpr std::uint64_t kMaxOnnxCompared = std::uint64_t{1} << 32;
inline constexpr std::size_t kMaxOnnxLayers = 10'000;

inline bool is_onnx_symbol(std::int64_t extent) { return extent <= kOnnxUnknown + kMaxOnnxExtent; }
// Returns an integer of a file, which is not taken for a symbol.
inline std::int64_t integer_of_file(std::int64_t value) {
  return std::max(value, kOnnxUnknown + 2 * kMaxOnnxExtent);
}
// Returns n for n times the number of samples, 0 for any other extent.
inline std::int64_t batches_of(std::int64_t extent) {
  return is_onnx_symbol(extent) ? extent - kOnnxUnknown : 0;
}

}  // namespace models
