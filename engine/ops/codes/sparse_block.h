// Rounds the sent numbers of a sparse block to levels, for the CPU and for kernels.
//
// A code is two scales (bf16), and an index, a sign and a level for each sent element. Both kinds
// of devices get the same bits: this is compiled without contraction to fused multiply-adds
// (CMakeLists.txt of the folders that include it), and sums have an order that threads can keep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "engine/ops/codes/lane_sums.h"
#include "io/base/numbers/half.h"

namespace engine::ops {

inline constexpr std::int64_t kSparseBlock = 4096;  // elements with one pair of scales
inline constexpr int kSparseIndexBits = 12;
inline constexpr int kSparseLanes = kSumLanes;  // of sums over the elements of a block

// The number of sent elements of a block of `count`; `kept`: that of a whole block.
BASE_HOST_DEVICE std::int64_t sparse_kept(std::int64_t kept, std::int64_t count) {
  return (kept * count + kSparseBlock - 1) / kSparseBlock;
}
// The bytes of the code of a block of `count` elements.
BASE_HOST_DEVICE std::size_t sparse_bytes(int bits, std::int64_t kept, std::int64_t count) {
  return 2 * sizeof(base::bf16) +
         static_cast<std::size_t>((sparse_kept(kept, count) * (kSparseIndexBits + bits) + 7) / 8);
}
// The number of levels of a value of `bits`, one of which is the sign.
BASE_HOST_DEVICE int sparse_levels(int bits) { return 1 << (bits - 1); }

// Evenly spaced magnitudes.
struct SparseLevels {
  double base = 0, step = 0;
  int count = 2;

  BASE_HOST_DEVICE int nearest(double magnitude) const {
    if (!(step > 0)) return 0;
    const double position = (magnitude - base) / step, last = count - 1;
    if (!(position > 0)) return 0;
    if (position >= last) return count - 1;
    const int below = static_cast<int>(position);
    return position - below >= 0.5 ? below + 1 : below;
  }
};

// Over the sent elements: their number, and sums of magnitudes, of levels, of their squares and of
// products of both. All but `sum` and `products` are integers, exact in any order.
struct SparseSums {
  double n = 0, sum = 0, levels = 0, squares = 0, products = 0;
};

// The levels of a code, as it stores them.
struct SparseScales {
  base::bf16 base, step;

  BASE_HOST_DEVICE SparseLevels levels(int count) const {
    return {static_cast<double>(base::to_float(base)), static_cast<double>(base::to_float(step)),
            count};
  }
};

// Returns false if the largest sent magnitude is NaN or exceeds f32: the block sends NaN.
BASE_HOST_DEVICE bool sparse_is_finite(double highest) {
  constexpr double kLargestF32 = std::numeric_limits<float>::max();
  return highest <= kLargestF32;
}
BASE_HOST_DEVICE SparseScales sparse_nan_scales() {
  constexpr std::uint16_t kNan = 0x7fc0;
  return {{kNan}, {kNan}};
}

// Spaces levels from the smallest to the largest sent magnitude.
BASE_HOST_DEVICE SparseLevels sparse_spaced(double lowest, double highest, int count) {
  return {lowest, (highest - lowest) / (count - 1), count};
}

// Fits the levels to the elements of each spaced level by least squares. With two levels, they
// become the means of the smaller and of the larger elements. Zeros stay zeros, above all those
// between two parameters, whose errors no checkpoint has.
BASE_HOST_DEVICE SparseScales sparse_fitted(double lowest, const SparseSums& sums) {
  double base = 0, step = 0;
  if (lowest == 0) {
    step = sums.squares > 0 ? sums.products / sums.squares : 0;
  } else {
    const double determinant = sums.n * sums.squares - sums.levels * sums.levels;
    step = determinant > 0 ? (sums.n * sums.products - sums.levels * sums.sum) / determinant : 0;
    base = (sums.sum - step * sums.levels) / sums.n;
    step = step > 0 ? step : 0;
  }
  return {base::from_float<base::bf16>(static_cast<float>(base)),
          base::from_float<base::bf16>(static_cast<float>(step))};
}

// The magnitude of a number, as bits in the order of magnitudes. NaN counts as infinite, so that it
// is sent and detected.
template <class T>
struct SparseKey;
template <>
struct SparseKey<float> {
  using Bits = std::uint32_t;
  static constexpr Bits kInfinite = 0x7f800000, kSign = 0x80000000;
};
template <>
struct SparseKey<double> {
  using Bits = std::uint64_t;
  static constexpr Bits kInfinite = 0x7ff0000000000000, kSign = 0x8000000000000000;
};
template <class T>
BASE_HOST_DEVICE typename SparseKey<T>::Bits sparse_key(T value) {
  using Key = SparseKey<T>;
  const auto bits = __builtin_bit_cast(typename Key::Bits, value) & ~Key::kSign;
  return bits < Key::kInfinite ? bits : Key::kInfinite;
}

// Returns the sign and the level of an element. NaN, whose sign depends on the processor, has none.
template <class T>
BASE_HOST_DEVICE std::uint32_t sparse_value_code(T value, const SparseLevels& levels) {
  using Key = SparseKey<T>;
  const bool negative =
      value == value && (__builtin_bit_cast(typename Key::Bits, value) & Key::kSign) != 0;
  const auto magnitude = static_cast<double>(value < 0 ? -value : value);
  return static_cast<std::uint32_t>((negative ? levels.count : 0) | levels.nearest(magnitude));
}

// Returns the element that a sign and a level stand for, times `factor`.
template <class T>
BASE_HOST_DEVICE T sparse_value(const SparseScales& scales, int count, std::uint32_t code,
                                T factor) {
  const auto sign = static_cast<std::uint32_t>(count);  // the bit above those of the level
  const T lowest = static_cast<T>(base::to_float(scales.base)),
          step = static_cast<T>(base::to_float(scales.step)),
          size = lowest + step * static_cast<T>(code & (sign - 1));
  return (code & sign) != 0 ? -factor * size : factor * size;
}

}  // namespace engine::ops
