// Describes the taps of a convolution along an axis, for its result and the gradient of its input.
// Only for sources compiled once per instruction set.
#pragma once

#include "engine/ops/common/simd.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

struct Range {
  std::int64_t first, last;
  ENGINE_INLINE std::int64_t count() const { return last - first; }
};

// Result j reads source j * step + offset + b * direction through tap b; it is pixel first + j *
// stride of the result's map, and the tap is tap_first + b * tap_stride of the kernel.
struct ConvAxis {
  std::int64_t extent, taps, step, offset, direction;  // of the source
  std::int64_t results, first, stride, tap_first, tap_stride;
};

// A kernel along an axis, and the sizes of the input and the output.
struct ConvAxisSizes {
  std::int64_t in, out, kernel, stride, padding;
};

// Returns the taps of result j that read pixels inside the source.
ENGINE_INLINE Range taps_of(const ConvAxis& axis, std::int64_t j) {
  const std::int64_t start = j * axis.step + axis.offset;
  const bool up = axis.direction > 0;
  const std::int64_t first = larger(0, up ? -start : start - axis.extent + 1);
  const std::int64_t last = smaller(axis.taps, up ? axis.extent - start : start + 1);
  return {first, larger(first, last)};
}

inline ConvAxis forward_axis(const ConvAxisSizes& s) {
  return {s.in, s.kernel, s.stride, -s.padding, 1, s.out, 0, 1, 0, 1};
}

// The pixels of the input's gradient that are `first` plus a multiple of the stride: only every
// stride-th tap reaches them.
inline ConvAxis backward_axis(const ConvAxisSizes& s, std::int64_t first) {
  const std::int64_t phase = (first + s.padding) % s.stride;
  const std::int64_t taps = phase < s.kernel ? (s.kernel - phase - 1) / s.stride + 1 : 0;
  return {s.out, taps,
          1,     (first + s.padding) / s.stride,
          -1,    (s.in - first - 1) / s.stride + 1,
          first, s.stride,
          phase, s.stride};
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
