// Divides the groups of a convolution into bundles that are computed together, so that narrow
// groups fill vectors. Only for sources compiled once per instruction set.
#pragma once

#include "engine/ops/channel_groups/conv_axis.h"
#include "engine/ops/common/flat_loops.h"
#include "engine/ops/gemm/tile_operands.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// Returns the vector whose lane i is lane index[i] of `v`, 0 <= index[i] < kWidth. It uses x86
// intrinsics: Eigen has no such function. REQUIRES: kCanPermute.
#if defined(__AVX512F__)
inline constexpr bool kCanPermute = true;
ENGINE_INLINE Floats permute(Floats v, Ints index) {
  return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(index), v);
}
#elif defined(__AVX2__)
inline constexpr bool kCanPermute = true;
ENGINE_INLINE Floats permute(Floats v, Ints index) {
  return _mm256_permutevar8x32_ps(v, reinterpret_cast<__m256i>(index));
}
#else
inline constexpr bool kCanPermute = false;
ENGINE_INLINE Floats permute(Floats v, Ints) { return v; }
#endif

ENGINE_INLINE std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
ENGINE_INLINE std::int64_t whole_vectors(std::int64_t floats) {
  return quotient_up(floats, kWidth) * kWidth;
}

// The groups of one side, as bundles of `size` groups; the last one may have fewer. Both
// sides of a convolution have the same bundles.
struct BundleSide {
  std::int64_t channels, group, size;  // all channels; those of a group; groups of a bundle

  ENGINE_INLINE std::int64_t bundles() const { return quotient_up(channels, group * size); }
  ENGINE_INLINE std::int64_t first(std::int64_t bundle) const { return bundle * group * size; }
  ENGINE_INLINE std::int64_t count(std::int64_t bundle) const {
    return smaller(group * size, channels - first(bundle));
  }
  // The number of floats of a bundle's pixel in a block (RowBlock): whole vectors.
  ENGINE_INLINE std::int64_t floats() const { return whole_vectors(group * size); }
  ENGINE_INLINE std::int64_t vectors() const { return floats() / kWidth; }
  // The lanes of vector `v` of a bundle that are channels.
  ENGINE_INLINE std::int64_t lanes(std::int64_t bundle, std::int64_t v) const {
    return smaller(kWidth, count(bundle) - v * kWidth);
  }
};

// Returns the number of groups in a bundle. If it is more than 1, a bundle's channels of each side
// fit in a vector.
inline std::int64_t bundle_size(std::int64_t from_group, std::int64_t to_group) {
  if (!kCanPermute) return 1;
  const std::int64_t wider = larger(from_group, to_group);
  return wider < kWidth ? kWidth / wider : 1;
}

// Returns for each lane of `to` the first channel of its group in a vector of `from`.
inline Ints first_channels(std::int64_t from_group, std::int64_t to_group) {
  Ints index{};
  for (int lane = 0; lane < kWidth; ++lane) {
    const std::int64_t channel = lane / to_group * from_group;
    index[lane] = static_cast<std::int32_t>(channel < kWidth ? channel : 0);
  }
  return index;
}

// Neighboring bundles that a unit of work computes: together they read whole cache lines.
inline std::int64_t bundles_at_once(const BundleSide& side) {
  constexpr std::int64_t kFloats = 64;
  return smaller(side.bundles(), larger(1, kFloats / side.floats()));
}

// The floats that the blocks of a unit may take, unless a single row takes more: they stay in L2.
inline constexpr std::int64_t kBlockFloats = std::int64_t{48} << 10;

// Pixels whose channels are prefetched before they are copied: hardware prefetchers do not follow a
// few lines of each pixel.
inline constexpr int kPixelsAhead = 8;

// Rows of neighboring bundles of an image, as floats: [bundle][row][column][channel], with columns
// of zeros at both ends of a row, so that tiles need no checks.
struct RowBlock {
  BundleSide side;
  std::int64_t rows, columns, left;  // left: the columns of zeros before the first pixel

  ENGINE_INLINE std::int64_t row() const { return columns * side.floats(); }
  ENGINE_INLINE std::int64_t bundle() const { return rows * row(); }
  ENGINE_INLINE std::int64_t total() const { return bundles_at_once(side) * bundle(); }

  // Writes `count` rows of `pixels` pixels each into rows 0, 1, ... of `to`, for these bundles.
  // The zeros stay: the caller clears the block once.
  void copy(const Stored* from, std::int64_t count, std::int64_t pixels, Range of_bundles,
            float* to) const {
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t x = 0; x < pixels; ++x, from += side.channels) {
        float* pixel = to + r * row() + (left + x) * side.floats();
        for (std::int64_t b = of_bundles.first; b < of_bundles.last; ++b, pixel += bundle()) {
          const Stored* channels = from + side.first(b);
          for_each_vector(0, side.count(b), [&](auto lanes, std::int64_t i) {
            __builtin_prefetch(channels + kPixelsAhead * side.channels + i, 0, 3);
            store(pixel + i, lanes.load_from(channels + i));
          });
        }
      }
  }
};

// A matrix [rows, columns] of floats and the place of its transposed one; strides of rows.
struct Transposed {
  const float* from;
  std::int64_t rows, columns, from_stride;
  float* to;
  std::int64_t to_stride;
};

// to[c][r] = from[r][c], or += with kAdd.
template <bool kAdd>
void transpose_matrix(const Transposed& m) {
  const std::int64_t rows = m.rows / 4 * 4, columns = m.columns / 4 * 4;
  for (std::int64_t r = 0; r < rows; r += 4)
    for (std::int64_t c = 0; c < columns; c += 4) {
      QuadSquare square;
      for (int i = 0; i < 4; ++i)
        square.packet[i] = load_quad(m.from + (r + i) * m.from_stride + c);
      transpose(square);
      for (int i = 0; i < 4; ++i) {
        float* to = m.to + (c + i) * m.to_stride + r;
        store_quad(to, kAdd ? load_quad(to) + square.packet[i] : square.packet[i]);
      }
    }
  for (std::int64_t c = 0; c < m.columns; ++c)
    for (std::int64_t r = c < columns ? rows : 0; r < m.rows; ++r) {
      float& to = m.to[c * m.to_stride + r];
      const float value = m.from[r * m.from_stride + c];
      to = kAdd ? to + value : value;
    }
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
