// What convolution's three products on a CUDA device have in common: which element of a map [n, h,
// w, channels] a tap reads at a place, for forward (a place is an output pixel, the map is x) and
// for backward to the input (a place is a pixel of one class of dx, the map is dy). Filled on the
// host, passed to kernels by value.
//
// A convolution is a matrix product whose left operand has one row per place and one column per
// pair (tap, channel). im2col writes this matrix to memory, where each element of x appears once
// per tap, nine times for a 3 x 3 kernel. Here it exists only as an index computation: a kernel
// that needs the element at (row, column) splits both numbers into coordinates and reads the map
// directly ("implicit GEMM"). The splitting takes divisions, which FastDivide turns into
// multiplications.
#pragma once

#include <cstdint>

#include "engine/ops/device/fast_divide.h"

namespace engine::ops::cuda {

struct Place {
  int image, y, x;
};

// At place (image, y, x) tap (ty, tx) reads map element [image, y * stride + first_y + direction *
// ty, x * stride + first_x + direction * tx, channel]; outside the map it reads 0. Places and pairs
// (tap, channel) are numbered in row-major order.
struct Window {
  int map_h = 0, map_w = 0, channels = 0;
  int stride = 1, first_y = 0, first_x = 0, direction = 1;
  int taps_x = 0, depth = 0;  // depth: taps * channels
  int places = 0, places_in_image = 0, places_in_row = 0;
  FastDivide by_image, by_row, by_channels, by_taps_x;

  void set_places(std::int64_t n, std::int64_t h, std::int64_t w) {
    places = static_cast<int>(n * h * w);
    places_in_image = static_cast<int>(h * w);
    places_in_row = static_cast<int>(w);
    by_image = FastDivide(h * w);
    by_row = FastDivide(w);
  }
  void set_taps(std::int64_t count_y, std::int64_t count_x, std::int64_t map_channels) {
    taps_x = static_cast<int>(count_x);
    channels = static_cast<int>(map_channels);
    depth = static_cast<int>(count_y * count_x * map_channels);
    by_taps_x = FastDivide(count_x > 0 ? count_x : 1);
    by_channels = FastDivide(map_channels);
  }

  BASE_HOST_DEVICE Place place(int number) const {
    const int image = by_image.quotient(number), in_image = number - image * places_in_image,
              y = by_row.quotient(in_image);
    return {image, y, in_image - y * places_in_row};
  }
  // Of a place's tap (0, 0), which may lie outside.
  BASE_HOST_DEVICE int map_y(const Place& place) const { return place.y * stride + first_y; }
  BASE_HOST_DEVICE int map_x(const Place& place) const { return place.x * stride + first_x; }
  BASE_HOST_DEVICE bool inside(int y, int x) const {
    return static_cast<unsigned>(y) < static_cast<unsigned>(map_h) &&
           static_cast<unsigned>(x) < static_cast<unsigned>(map_w);
  }
  // Of a map element, which may lie outside.
  BASE_HOST_DEVICE std::int64_t offset(int image, int y, int x) const {
    return std::int64_t{(image * map_h + y) * map_w + x} * channels;
  }
};

// Number `at` of the pairs (tap, channel), taken apart.
struct Tap {
  int y, x, channel;
};
BASE_HOST_DEVICE Tap tap_of(const Window& window, int at) {
  const int tap = window.by_channels.quotient(at), y = window.by_taps_x.quotient(tap);
  return {y, tap - y * window.taps_x, at - tap * window.channels};
}

}  // namespace engine::ops::cuda
