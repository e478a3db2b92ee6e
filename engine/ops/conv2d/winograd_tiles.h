// Winograd's transforms F(4x4, 3x3) of tiles of 6 x 6, vectorised over channels. Only for sources
// compiled once per instruction set.
//
// A convolution of 3 taps along one axis is a product of polynomials: evaluated at 6 points, the
// tile of 6 inputs and the 3 taps are multiplied point by point, and 4 outputs are interpolated
// from the 6 products, where the plain sum takes 12 (Winograd 1980; Lavin and Gray, CVPR 2016). In
// two dimensions the same along rows and columns: 36 products a tile instead of 144, and the
// products of all channels are 36 matrix products. The gradient of the weights is such a
// convolution too, of 4 taps (a tile of dy) and 3 outputs.
//
// Exactness depends on the points. The usual 0, +-1, +-2, infinity lose 7 times as much as plain
// sums or more, these 2 to 4 times: 0, +-a, +-b, infinity with a * b near 1 keep the matrices'
// entries near each other in size (Barabasz et al., ACM TOMS 46(4), 2020; Alam et al., ACM TECS
// 21(6), 2022). All entries but those of 1 / N are exact in binary.
#pragma once

#include "engine/ops/common/flat_loops.h"
#include "engine/ops/gemm/gemm_tiles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

inline constexpr int kTileSide = 6, kTilePoints = 36;  // inputs along a side; products
inline constexpr int kTileOut = 4;                     // outputs of a convolution, along a side
inline constexpr int kTaps = 3;

// Products are summed over channels (backward to the weights: tiles) so many at a time, then the
// sums: longer sums lose more than the transforms do.
inline constexpr std::int64_t kExactSteps = 32;

namespace winograd {

inline constexpr float kA = 0.6875f, kB = 1.5f;  // the points a and b
inline constexpr float kA2 = kA * kA, kB2 = kB * kB, kA3 = kA2 * kA, kB3 = kB2 * kB;
// 1 / product of a point's distances to the others.
inline constexpr double kN0 = 1.0 / (double(kA2) * kB2), kNa = 0.5 / (double(kA2) * (kA2 - kB2)),
                        kNb = 0.5 / (double(kB2) * (kB2 - kA2));

// 6 inputs, evaluated.
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

// 3 taps, evaluated and divided by N.
struct Taps {
  static constexpr int kIn = 3, kOut = 6;
  ENGINE_INLINE static void run(const Floats (&g)[3], Floats (&u)[6]) {
    constexpr float n0 = float(kN0), na = float(kNa), nb = float(kNb);
    u[0] = n0 * g[0];
    const Floats even_a = na * (g[0] + kA2 * g[2]), even_b = nb * (g[0] + kB2 * g[2]);
    constexpr float a = float(kNa * kA), b = float(kNb * kB);
    u[1] = even_a + a * g[1], u[2] = even_a - a * g[1];
    u[3] = even_b + b * g[1], u[4] = even_b - b * g[1];
    u[5] = g[2];
  }
};

// 6 products to 4 outputs.
struct Output {
  static constexpr int kIn = 6, kOut = 4;
  ENGINE_INLINE static void run(const Floats (&m)[6], Floats (&y)[4]) {
    const Floats sum_a = m[1] + m[2], difference_a = m[1] - m[2];
    const Floats sum_b = m[3] + m[4], difference_b = m[3] - m[4];
    y[0] = m[0] + sum_a + sum_b;
    y[1] = kA * difference_a + kB * difference_b;
    y[2] = kA2 * sum_a + kB2 * sum_b;
    y[3] = m[5] + kA3 * difference_a + kB3 * difference_b;
  }
};

// For the gradient of the weights. 4 gradients of outputs, evaluated; not yet divided by N.
struct Gradient {
  static constexpr int kIn = 4, kOut = 6;
  ENGINE_INLINE static void run(const Floats (&g)[4], Floats (&d)[6]) {
    d[0] = g[0];
    const Floats even_a = g[0] + kA2 * g[2], odd_a = g[1] + kA2 * g[3];
    d[1] = even_a + kA * odd_a, d[2] = even_a - kA * odd_a;
    const Floats even_b = g[0] + kB2 * g[2], odd_b = g[1] + kB2 * g[3];
    d[3] = even_b + kB * odd_b, d[4] = even_b - kB * odd_b;
    d[5] = g[3];
  }
};

// 6 sums of products to the gradients of 3 taps; divides by N.
struct TapGradient {
  static constexpr int kIn = 6, kOut = 3;
  ENGINE_INLINE static void run(const Floats (&m)[6], Floats (&w)[3]) {
    constexpr float n0 = float(kN0), na = float(kNa), nb = float(kNb);
    const Floats sum_a = na * (m[1] + m[2]), difference_a = m[1] - m[2];
    const Floats sum_b = nb * (m[3] + m[4]), difference_b = m[3] - m[4];
    constexpr float a = float(kNa * kA), b = float(kNb * kB);
    w[0] = n0 * m[0] + sum_a + sum_b;
    w[1] = a * difference_a + b * difference_b;
    w[2] = m[5] + kA2 * sum_a + kB2 * sum_b;
  }
};

// Along columns, then along rows. get(i) is element i of the tile, row-major; put(i, value).
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

// Floats of a tile's `channels` in V: whole vectors.
ENGINE_INLINE std::int64_t tile_floats(std::int64_t channels) {
  return (channels + kWidth - 1) / kWidth * kWidth;
}

// Floats from one of the 36 points to the next: at least `floats`, and an odd number of cache
// lines, so that the 36 values of a tile lie in different sets of the cache.
ENGINE_INLINE constexpr std::int64_t point_stride(std::int64_t floats) {
  return ((floats + 15) / 16 | 1) * 16;
}

// How an output map [h, w] of a batch is cut into tiles: numbered along rows, maps, images.
struct TileMap {
  std::int64_t h, w, down, across;
  ENGINE_INLINE TileMap(std::int64_t map_h, std::int64_t map_w)
      : h(map_h),
        w(map_w),
        down((map_h + kTileOut - 1) / kTileOut),
        across((map_w + kTileOut - 1) / kTileOut) {}
  ENGINE_INLINE std::int64_t of_image() const { return down * across; }
};

// Maps [h, w, channels] of a batch; `outside` is as good as any pixel outside of them: zeros where
// it is read, a place to write to.
template <class Float>
struct PixelMaps {
  Float* data;
  std::int64_t h, w, channels;
  Float* outside;
};

// The pixels of a square of side kSide at a tile; it begins `padding` above and left of the tile's
// first output.
template <int kSide, class Float>
ENGINE_INLINE void find_pixels(const TileMap& tiles, std::int64_t tile, std::int64_t padding,
                               const PixelMaps<Float>& maps, Float* (&pixel)[kSide * kSide]) {
  const std::int64_t image = tile / tiles.of_image(), in_image = tile % tiles.of_image();
  const std::int64_t top = in_image / tiles.across * kTileOut - padding;
  const std::int64_t left = in_image % tiles.across * kTileOut - padding;
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) {
      const std::int64_t y = top + i, x = left + j;
      pixel[i * kSide + j] = y >= 0 && y < maps.h && x >= 0 && x < maps.w
                                 ? maps.data + ((image * maps.h + y) * maps.w + x) * maps.channels
                                 : maps.outside;
    }
  }
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
