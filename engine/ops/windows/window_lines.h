// The windows along one axis, for kernels. Included by .cu files only.
#pragma once

#include "engine/ops/device/device_code.h"
#include "engine/ops/windows/window_geometry.h"

namespace engine::ops::cuda {

struct WindowLine {
  int extent, kernel, stride, dilation, before, windows;
};
inline WindowLine line_of(const WindowAxis& axis) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  return {number(axis.extent),   number(axis.kernel), number(axis.stride),
          number(axis.dilation), number(axis.before), number(axis.count())};
}

// Returns the window that reads `place` as its k-th place; -1 if there is none.
__device__ __forceinline__ int window_of(const WindowLine& axis, int place, int k) {
  const int start = place + axis.before - k * axis.dilation;
  if (start < 0 || start % axis.stride != 0) return -1;
  const int window = start / axis.stride;
  return window < axis.windows ? window : -1;
}

}  // namespace engine::ops::cuda
