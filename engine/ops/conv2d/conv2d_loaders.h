// The loaders of convolution's operands for the main loop of matrix products (gemm_main_loop.h),
// which documents their members. If channels are a multiple of 16 bytes and aligned (`vector`), a
// chunk is one asynchronous copy, otherwise it is assembled element by element. Elements outside
// are zero. The third operand, weights in forward and dy in the gradient of the weights, is a plain
// matrix (gemm_matrix.h).
#pragma once

#include "engine/ops/conv2d/conv2d_window.h"
#include "engine/ops/gemm/gemm_matrix.h"

namespace engine::ops::cuda {

// Returns true if lines of `channels` elements may be read in chunks.
template <class S>
bool in_chunks(const S* data, std::int64_t channels) {
  return alignment_of(data, channels) == 16;
}

// Lines are places, and k iterates over (tap, channel): the gathered operand of forward (kDirection
// 1) and of backward to the input (-1: reversed taps).
template <class S, int kDirection>
struct PlaceLoader {
  using Storage = S;
  static constexpr bool kByDepth = true;
  struct Line {
    int pixel;   // the pixel that tap (0, 0) reads, inside the map or not
    short y, x;  // two per register
  };
  using Depth = Digits;

  Window window;
  const S* map;
  int pixel_bytes;
  bool vector;

  static PlaceLoader of(const Window& window, const S* map, bool vector) {
    return {window, map, window.channels * static_cast<int>(sizeof(S)), vector};
  }
  __device__ __forceinline__ Line line(int line) const {
    const bool valid = line < window.places;
    const Digits place = window.by_place.digits(valid ? line : 0);
    const int y = window.map_y(place), x = window.map_x(place);
    constexpr int kNowhere = -32768;
    return {window.pixel(place.high, y, x), static_cast<short>(valid ? y : kNowhere),
            static_cast<short>(x)};
  }
  __device__ __forceinline__ Depth depth(int depth) const { return window.by_tap.digits(depth); }
  template <int kBy>
  __device__ __forceinline__ void advance(Depth& tap) const {
    static_assert(kBy == gemm_stage_depth(sizeof(S)));
    window.by_tap.advance(tap);
  }
  __device__ __forceinline__ void copy(S* to, const Line& line, const Depth& tap, int depth,
                                       int depth_end) const {
    if (vector) {
      copy_or_zero_16(to, address(line, tap), (depth < depth_end) & inside(line, tap));
      return;
    }
    Digits t = tap;
    copy_elements(to, map, [&] {
      const S* from = depth < depth_end && inside(line, t) ? address(line, t) : nullptr;
      window.by_tap.next(t), ++depth;
      return from;
    });
  }

 private:
  __device__ __forceinline__ bool inside(const Line& line, const Digits& tap) const {
    return window.inside(line.y + kDirection * tap.high, line.x + kDirection * tap.middle);
  }
  __device__ __forceinline__ const S* address(const Line& line, const Digits& tap) const {
    const int pixels = kDirection * (tap.high * window.map_w + tap.middle);
    return moved(map + tap.low, std::int64_t{line.pixel + pixels} * pixel_bytes);
  }
};

// Lines are pairs (tap, channel), and k iterates over places: the gathered operand of the gradient
// of the weights.
template <class S>
struct TapLoader {
  using Storage = S;
  static constexpr bool kByDepth = false;
  struct Line {
    Digits tap;
    int left;  // number of pairs from this one on
  };
  using Depth = Digits;

  Window window;
  const S* map;
  int pixel_bytes;
  bool vector;

  static TapLoader of(const Window& window, const S* map, bool vector) {
    return {window, map, window.channels * static_cast<int>(sizeof(S)), vector};
  }
  __device__ __forceinline__ Line line(int line) const {
    return {window.by_tap.digits(line), window.depth - line};
  }
  __device__ __forceinline__ Depth depth(int depth) const { return window.by_place.digits(depth); }
  template <int kBy>
  __device__ __forceinline__ void advance(Depth& place) const {
    static_assert(kBy == gemm_stage_depth(sizeof(S)));
    window.by_place.advance(place);
  }
  __device__ __forceinline__ void copy(S* to, const Line& line, const Depth& place, int depth,
                                       int depth_end) const {
    if (vector) {
      copy_or_zero_16(to, address(place, line.tap),
                      (depth < depth_end) & (line.left > 0) & inside(place, line.tap));
      return;
    }
    Line l = line;
    copy_elements(to, map, [&] {
      const bool valid = depth < depth_end && l.left > 0 && inside(place, l.tap);
      const S* from = valid ? address(place, l.tap) : nullptr;
      window.by_tap.next(l.tap), --l.left;
      return from;
    });
  }

 private:
  __device__ __forceinline__ bool inside(const Digits& place, const Digits& tap) const {
    return window.inside(window.map_y(place) + tap.high, window.map_x(place) + tap.middle);
  }
  __device__ __forceinline__ const S* address(const Digits& place, const Digits& tap) const {
    const int pixel =
        window.pixel(place.high, window.map_y(place) + tap.high, window.map_x(place) + tap.middle);
    return moved(map + tap.low, std::int64_t{pixel} * pixel_bytes);
  }
};

// The taps of a kernel [kernel_h, kernel_w] that a class of input pixels sees: first_y + ty * step,
// first_x + tx * step.
struct TapGrid {
  int kernel_w = 0, first_y = 0, first_x = 0, step = 1;
};

// Lines are input channels, and k iterates over (tap, output channel): the weights [kh, kw, in,
// out] in backward to the input.
template <class S>
struct WeightLoader {
  using Storage = S;
  static constexpr bool kByDepth = true;
  struct Line {
    int offset;  // in weights; negative: outside
  };
  using Depth = Digits;

  Numbering by_tap;
  const S* weight;  // tap (0, 0) of the class
  int lines, row_pitch, tap_pitch_y, tap_pitch_x;
  bool vector;

  static WeightLoader of(const Window& window, const TapGrid& grid, const S* weight,
                         std::int64_t in_channels, bool vector) {
    const std::int64_t tap = in_channels * window.channels;
    return {window.by_tap,
            weight + (grid.first_y * grid.kernel_w + grid.first_x) * tap,
            static_cast<int>(in_channels),
            window.channels,
            static_cast<int>(grid.step * grid.kernel_w * tap),
            static_cast<int>(grid.step * tap),
            vector};
  }
  __device__ __forceinline__ Line line(int line) const {
    return {line < lines ? line * row_pitch : -1};
  }
  __device__ __forceinline__ Depth depth(int depth) const { return by_tap.digits(depth); }
  template <int kBy>
  __device__ __forceinline__ void advance(Depth& tap) const {
    static_assert(kBy == gemm_stage_depth(sizeof(S)));
    by_tap.advance(tap);
  }
  __device__ __forceinline__ void copy(S* to, const Line& line, const Depth& tap, int depth,
                                       int depth_end) const {
    if (vector) {
      copy_or_zero_16(to, address(line, tap), (depth < depth_end) & (line.offset >= 0));
      return;
    }
    Digits t = tap;
    copy_elements(to, weight, [&] {
      const S* from = depth < depth_end && line.offset >= 0 ? address(line, t) : nullptr;
      by_tap.next(t), ++depth;
      return from;
    });
  }

 private:
  __device__ __forceinline__ const S* address(const Line& line, const Digits& tap) const {
    return weight + (line.offset + tap.high * tap_pitch_y + tap.middle * tap_pitch_x + tap.low);
  }
};

}  // namespace engine::ops::cuda
