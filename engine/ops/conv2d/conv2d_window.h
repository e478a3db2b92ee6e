// The index computation that convolution's three products on a CUDA device share: the element of a
// map [n, h, w, channels] that a tap reads at a place, for forward (a place is an output pixel, the
// map is x) and for backward to the input (a place is a pixel of one class of dx, the map is dy).
// The host fills it, and kernels receive it by value.
//
// A convolution is a matrix product whose left operand has one row per place and one column per
// pair (tap, channel). im2col writes this matrix to memory, where each element of x appears once
// per tap, nine times for a 3 x 3 kernel. Here it exists only as an index computation: a kernel
// that needs the element at (row, column) splits both numbers into coordinates and reads the map
// directly ("implicit GEMM"). The split needs divisions, which FastDivide turns into
// multiplications; a kernel that advances in equal steps carries digits instead.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "engine/core/error.h"
#include "engine/ops/conv2d/conv2d_operands.h"
#include "engine/ops/device/fast_divide.h"

namespace engine::ops::cuda {

// A number in three digits, row-major: a place (image, y, x), or a pair of a tap and a channel
// (tap's y, tap's x, channel).
struct Digits {
  int high, middle, low;
};

// Numbers whose lower two digits have these bases, and the step that advances them.
struct Numbering {
  int middles = 1, lows = 1;
  FastDivide by_middles, by_lows;
  Digits step{};  // the increment of advance()

  Numbering() = default;
  Numbering(std::int64_t count_middle, std::int64_t count_low, int by)
      : middles(static_cast<int>(count_middle)),
        lows(static_cast<int>(count_low)),
        by_middles(count_middle),
        by_lows(count_low) {
    step = digits(by);
  }

  BASE_HOST_DEVICE Digits digits(int number) const {
    const int above = by_lows.quotient(number), high = by_middles.quotient(above);
    return {high, above - high * middles, number - above * lows};
  }
  BASE_HOST_DEVICE void advance(Digits& d) const {
    d.low += step.low, d.middle += step.middle, d.high += step.high;
    if (d.low >= lows) d.low -= lows, ++d.middle;
    if (d.middle >= middles) d.middle -= middles, ++d.high;
  }
  BASE_HOST_DEVICE void next(Digits& d) const {
    if (++d.low < lows) return;
    d.low = 0;
    if (++d.middle < middles) return;
    d.middle = 0, ++d.high;
  }
};

// At place (image, y, x), tap (ty, tx) reads map element [image, y * stride + first_y +- ty, x *
// stride + first_x +- tx, channel]; outside the map it reads 0.
struct Window {
  int map_h = 0, map_w = 0, channels = 0;
  int stride = 1, first_y = 0, first_x = 0;
  int places = 0, depth = 0;  // depth: taps * channels
  Numbering by_place, by_tap;

  // `step` is the k of a stage of the product that iterates over places or taps.
  void set_places(std::int64_t n, std::int64_t h, std::int64_t w, int step) {
    places = static_cast<int>(n * h * w);
    by_place = Numbering(h, w, step);
  }
  void set_taps(std::int64_t count_y, std::int64_t count_x, std::int64_t map_channels, int step) {
    channels = static_cast<int>(map_channels);
    depth = static_cast<int>(count_y * count_x * map_channels);
    by_tap = Numbering(std::max<std::int64_t>(count_x, 1), map_channels, step);
  }

  // The position of a place's tap (0, 0), which may be outside.
  BASE_HOST_DEVICE int map_y(const Digits& place) const { return place.middle * stride + first_y; }
  BASE_HOST_DEVICE int map_x(const Digits& place) const { return place.low * stride + first_x; }
  BASE_HOST_DEVICE bool inside(int y, int x) const {
    return (static_cast<unsigned>(y) < static_cast<unsigned>(map_h)) &
           (static_cast<unsigned>(x) < static_cast<unsigned>(map_w));
  }
  // The index of a map's pixel, which may be outside.
  BASE_HOST_DEVICE int pixel(int image, int y, int x) const {
    return (image * map_h + y) * map_w + x;
  }
};

// Throws Error if pixel indices exceed 31 bits or coordinates exceed 15 bits.
inline void require_countable(const Conv2dGeometry& g, std::int64_t n) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max(), kMaxAcross = 32000;
  require(n * (g.in_h + 1) * (g.in_w + 1) <= kMost && n * g.out_h() * g.out_w() <= kMost,
          "a convolution on a CUDA device has fewer than 2^31 pixels in a batch");
  require(g.kernel_h * g.kernel_w * (g.in_channels / g.groups) * g.out_channels <= kMost,
          "a convolution on a CUDA device has fewer than 2^31 weights");
  require(
      std::max({g.in_h, g.in_w, g.out_h(), g.out_w()}) + 2 * g.padding <= kMaxAcross,
      "a convolution on a CUDA device has images of up to 32000 x 32000 pixels, padding included");
}

// Places are output pixels, the map is x.
inline Window forward_window(const Conv2dGeometry& g, std::int64_t n, int step) {
  require_countable(g, n);
  Window window;
  window.map_h = static_cast<int>(g.in_h), window.map_w = static_cast<int>(g.in_w);
  window.stride = static_cast<int>(g.stride);
  window.first_y = window.first_x = -static_cast<int>(g.padding);
  window.set_places(n, g.out_h(), g.out_w(), step);
  window.set_taps(g.kernel_h, g.kernel_w, g.in_channels, step);
  return window;
}

}  // namespace engine::ops::cuda
