// Winograd's transforms of tiles of 6 x 6, vectorized over channels: F(4x4, 3x3) and F(2x2, 5x5).
// Only for sources compiled once per instruction set.
//
// A convolution with 3 taps along one axis is a product of polynomials. The tile of 6 inputs and
// the 3 taps are evaluated at 6 points and multiplied point by point. Then 4 outputs are
// interpolated from the 6 products, where the plain sum needs 12 (Winograd 1980; Lavin and Gray,
// CVPR 2016). Two dimensions do the same along rows and columns: 36 products per tile instead of
// 144, and the products of all channels are 36 matrix products. The gradient of the weights is also
// such a convolution, with 4 taps (a tile of dy) and 3 outputs. With 5 taps a tile of 6 inputs
// gives 2 outputs, 36 products instead of 100; the evaluation of the inputs is the same.
//
// Accuracy depends on the points. The usual 0, +-1, +-2, infinity lose 7 times as much as plain
// sums or more, those here 2 to 4 times. The points 0, +-a, +-b, infinity with a * b near 1 keep
// the matrices' entries close to each other in magnitude (Barabasz et al., ACM TOMS 46(4), 2020;
// Alam et al., ACM TECS 21(6), 2022). All entries except those of 1 / N are exact in binary.
#pragma once

#include "engine/ops/common/flat_loops.h"
#include "engine/ops/gemm/gemm_tiles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

inline constexpr int kTileSide = 6, kTilePoints = 36;  // inputs along a side; products

// The number of outputs of a tile along a side.
ENGINE_INLINE constexpr int tile_out(std::int64_t taps) {
  return kTileSide + 1 - static_cast<int>(taps);
}

// Products are summed over this many channels (backward to the weights: tiles) at a time, then the
// sums are added: longer sums lose more accuracy than the transforms do.
inline constexpr std::int64_t kExactSteps = 32;

namespace winograd {

inline constexpr float kA = 0.6875f, kB = 1.5f;  // the points a and b
inline constexpr float kA2 = kA * kA, kB2 = kB * kB;
// 1 / product of a point's distances to the others.
inline constexpr double kN0 = 1.0 / (double(kA2) * kB2), kNa = 0.5 / (double(kA2) * (kA2 - kB2)),
                        kNb = 0.5 / (double(kB2) * (kB2 - kA2));

// Evaluates 6 inputs.
struct Input {
  static constexpr int kIn = 6, kOut = 6;
  ENGINE_INLINE static void run(const Floats (&d)[6], Floats (&v)[6]) {
    v[0] = d[4] + kA2 * kB2 * d[0] - (kA2 + kB2) * d[2];
    v[5] = d[5] + kA2 * kB2 * d[1] - (kA2 + kB2) * d[3];
    const Floats even_a = d[4] - kB2 * d[2], odd_a = d[3] - kB2 * d[1];
    v[1] = even_a + kA * odd_a, v[2] = even_a - kA * odd_a;
    const Floats even_b = d[4] - kA2 * d[2], odd_b = d[3] - kA2 * d[1];
    v[3] = even_b + kB * odd_b, v[4] = even_b - kB * odd_b;
  }
};

// x, x^2, ... of a point x; odd powers are multiplied by `odd`.
struct Powers {
  float of[6];
};
constexpr Powers powers(double x, double odd) {
  Powers p{};
  double value = 1;
  for (int k = 0; k < 6; ++k, value *= x) p.of[k] = static_cast<float>(k % 2 ? odd * value : value);
  return p;
}

// g[kFirst] + g[kFirst + 2] * x2 + g[kFirst + 4] * x2^2 ..
template <int kFirst, int kTerms>
ENGINE_INLINE Floats in_squares(const Floats (&g)[kTerms], float x2) {
  constexpr int kLast = kFirst + (kTerms - 1 - kFirst) / 2 * 2;
  Floats sum = g[kLast];
  ENGINE_UNROLL
  for (int i = kLast - 2; i >= kFirst; i -= 2) sum = g[i] + x2 * sum;
  return sum;
}

// Evaluates a polynomial of kTerms coefficients; kDivide: and divides by N.
template <int kTerms, bool kDivide>
struct Evaluate {
  static constexpr int kIn = kTerms, kOut = 6;
  ENGINE_INLINE static void run(const Floats (&g)[kTerms], Floats (&u)[6]) {
    constexpr double n0 = kDivide ? kN0 : 1, na = kDivide ? kNa : 1, nb = kDivide ? kNb : 1;
    u[0] = float(n0) * g[0];
    const Floats even_a = float(na) * in_squares<0>(g, kA2), odd_a = in_squares<1>(g, kA2);
    u[1] = even_a + float(na * kA) * odd_a, u[2] = even_a - float(na * kA) * odd_a;
    const Floats even_b = float(nb) * in_squares<0>(g, kB2), odd_b = in_squares<1>(g, kB2);
    u[3] = even_b + float(nb * kB) * odd_b, u[4] = even_b - float(nb * kB) * odd_b;
    u[5] = g[kTerms - 1];
  }
};

// Interpolates kTerms results from 6 products; kDivide: and divides by N.
template <int kTerms, bool kDivide>
struct Interpolate {
  static constexpr int kIn = 6, kOut = kTerms;
  ENGINE_INLINE static void run(const Floats (&m)[6], Floats (&y)[kTerms]) {
    constexpr double n0 = kDivide ? kN0 : 1, na = kDivide ? kNa : 1, nb = kDivide ? kNb : 1;
    const Floats sum_a = float(na) * (m[1] + m[2]), difference_a = m[1] - m[2];
    const Floats sum_b = float(nb) * (m[3] + m[4]), difference_b = m[3] - m[4];
    y[0] = float(n0) * m[0] + sum_a + sum_b;
    constexpr Powers a = powers(kA, na), b = powers(kB, nb);
    ENGINE_UNROLL
    for (int k = 1; k < kTerms; ++k) {
      Floats sum = a.of[k] * (k % 2 ? difference_a : sum_a);
      if (k == kTerms - 1) sum += m[5];
      y[k] = sum + b.of[k] * (k % 2 ? difference_b : sum_b);
    }
  }
};

// Transforms along columns, then along rows. get(i) is element i of the tile, row-major; put(i,
// value) stores the result.
template <class Transform, class Get, class Put>
ENGINE_INLINE void transform(Get get, Put put) {
  constexpr int kIn = Transform::kIn, kOut = Transform::kOut;
  Floats half[kOut][kIn];
  ENGINE_UNROLL
  for (int x = 0; x < kIn; ++x) {
    Floats from[kIn], to[kOut];
    ENGINE_UNROLL
    for (int y = 0; y < kIn; ++y) from[y] = get(y * kIn + x);
    Transform::run(from, to);
    ENGINE_UNROLL
    for (int y = 0; y < kOut; ++y) half[y][x] = to[y];
  }
  ENGINE_UNROLL
  for (int y = 0; y < kOut; ++y) {
    Floats to[kOut];
    Transform::run(half[y], to);
    ENGINE_UNROLL
    for (int x = 0; x < kOut; ++x) put(y * kOut + x, to[x]);
  }
}

}  // namespace winograd

// The floats of a tile's `channels` in V: whole vectors.
ENGINE_INLINE std::int64_t tile_floats(std::int64_t channels) {
  return (channels + kWidth - 1) / kWidth * kWidth;
}

// The distance in floats between two of the 36 points: at least `floats`, and an odd number of
// cache lines, so that the 36 values of a tile are in different cache sets.
ENGINE_INLINE constexpr std::int64_t point_stride(std::int64_t floats) {
  return ((floats + 15) / 16 | 1) * 16;
}

// The tiles of an output map [h, w] of a batch, numbered along rows, maps and images.
struct TileMap {
  std::int64_t h, w, side, down, across;  // side: of a tile
  ENGINE_INLINE TileMap(std::int64_t map_h, std::int64_t map_w, std::int64_t tile_side)
      : h(map_h),
        w(map_w),
        side(tile_side),
        down((map_h + tile_side - 1) / tile_side),
        across((map_w + tile_side - 1) / tile_side) {}
  ENGINE_INLINE std::int64_t of_image() const { return down * across; }
};

// Maps [h, w, channels] of a batch; `outside` stands for any pixel outside of them: zeros if it is
// read, a dummy target if it is written.
template <class Float>
struct PixelMaps {
  Float* data;
  std::int64_t h, w, channels;
  Float* outside;
};

// Finds the pixels of a square of side kSide at a tile; the square starts `padding` above and left
// of the tile's first output.
template <int kSide, class Float>
ENGINE_INLINE void find_pixels(const TileMap& tiles, std::int64_t tile, std::int64_t padding,
                               const PixelMaps<Float>& maps, Float* (&pixel)[kSide * kSide]) {
  const std::int64_t image = tile / tiles.of_image(), in_image = tile % tiles.of_image();
  const std::int64_t top = in_image / tiles.across * tiles.side - padding;
  const std::int64_t left = in_image % tiles.across * tiles.side - padding;
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) {
      const std::int64_t y = top + i, x = left + j;
      pixel[i * kSide + j] = y >= 0 && y < maps.h && x >= 0 && x < maps.w
                                 ? maps.data + ((image * maps.h + y) * maps.w + x) * maps.channels
                                 : maps.outside;
    }
  }
}

// Iterates over the pixels that one tile after another reads, and prefetches those of the next tile
// into L2: hardware prefetchers do not predict the few pixels of a tile with few channels.
template <int kSide>
class TilePixels {
 public:
  // `count` is the total number of tiles.
  ENGINE_INLINE TilePixels(const TileMap& tiles, std::int64_t count, std::int64_t padding,
                           const PixelMaps<const Stored>& maps, std::int64_t first)
      : tiles_(tiles), count_(count), padding_(padding), maps_(maps) {
    find(first);
  }
  // Advances to `tile`: the first one, or the one after the last.
  ENGINE_INLINE void go_to(std::int64_t tile) {
    now_ ^= 1;
    find(smaller(tile + 1, count_ - 1));
  }
  template <class Lanes>
  ENGINE_INLINE Floats load_from(Lanes lanes, int place, std::int64_t i) const {
    __builtin_prefetch(pixel_[now_ ^ 1][place] + i, 0, 2);
    return lanes.load_from(pixel_[now_][place] + i);
  }

 private:
  ENGINE_INLINE void find(std::int64_t tile) {
    find_pixels<kSide, const Stored>(tiles_, tile, padding_, maps_, pixel_[now_ ^ 1]);
  }

  const TileMap& tiles_;
  std::int64_t count_, padding_;
  PixelMaps<const Stored> maps_;
  int now_ = 0;  // the other index is that of the next tile
  const Stored* pixel_[2][kSide * kSide];
};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
