// The windows of a convolution of any kernel, stride, dilation and padding, along each axis.
#pragma once

#include <cstdint>

namespace engine::ops {

// Window i of an axis reads the places i * stride - before + k * dilation, for k in [0, kernel). A
// place outside of [0, extent) reads 0. Negative padding removes windows at that end.
struct WindowAxis {
  std::int64_t extent = 1, kernel = 1, stride = 1, dilation = 1, before = 0, after = 0;

  std::int64_t reach() const { return dilation * (kernel - 1) + 1; }
  std::int64_t count() const { return (extent + before + after - reach()) / stride + 1; }
  // Returns the window that reads `place` as its k-th place; -1 if there is none.
  std::int64_t window_of(std::int64_t place, std::int64_t k) const {
    const std::int64_t start = place + before - k * dilation;
    if (start < 0 || start % stride != 0) return -1;
    const std::int64_t window = start / stride;
    return window < count() ? window : -1;
  }
};

struct WindowGeometry {
  WindowAxis rows, columns;
  std::int64_t channels = 1;

  std::int64_t places() const { return rows.kernel * columns.kernel; }
};

}  // namespace engine::ops
