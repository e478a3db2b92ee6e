// Quantizes the numbers of a block, for the CPU and for kernels.
//
// A code is a scale (bf16) and an integer of 8 or 4 bits for each element: value / scale, rounded
// at random so that its expected value is exact. Both kinds of devices get the same bits: this is
// compiled without contraction to fused multiply-adds (CMakeLists.txt of the folders that include
// it), and products of a scale and an integer are exact.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "io/base/numbers/half.h"
#include "io/base/numbers/split_mix.h"

namespace engine {

// Numbers for stochastic rounding by position, so that any thread, bucket or resumed run draws the
// same ones.
class RoundingNoise {
 public:
  // `stream` is the key of one use. The noise of ranks and of rounds is independent. The codes of
  // sums have a number that no rank has.
  BASE_HOST_DEVICE RoundingNoise(std::uint64_t stream, int rank, std::int64_t round)
      : key_(io::SplitMix(stream, static_cast<std::uint64_t>(rank),
                          static_cast<std::uint64_t>(round))
                 .next()) {}
  // Uniform in [0, 1), with 24 bits.
  BASE_HOST_DEVICE float at(std::int64_t element) const {
    const std::uint64_t word =
        io::mix_bits(key_ + io::SplitMix::kStep * (static_cast<std::uint64_t>(element) + 1));
    return static_cast<float>(static_cast<std::uint32_t>(word >> 40)) * 0x1p-24F;
  }

 private:
  std::uint64_t key_;
};

namespace ops {

inline constexpr std::int64_t kQuantizedBlock = 256;  // elements with one scale

// The bytes of the code of a block of `count` elements.
constexpr std::size_t quantized_bytes(int bits, std::int64_t count) {
  return sizeof(base::bf16) + static_cast<std::size_t>((count * bits + 7) / 8);
}

// The largest magnitude of an integer.
BASE_HOST_DEVICE int quantized_levels(int bits) { return bits == 8 ? 127 : 7; }

// Returns the smallest bf16 number that is normal and not below `largest` / `levels`: no element is
// clipped. NaN if `largest`, the largest magnitude of a block, is NaN or exceeds f32; 0 for 0.
BASE_HOST_DEVICE base::bf16 quantized_scale(double largest, int levels) {
  constexpr std::uint16_t kSmallestNormal = 0x0080, kNan = 0x7fc0;
  constexpr double kLargestF32 = std::numeric_limits<float>::max();
  if (!(largest <= kLargestF32)) return {kNan};
  if (largest == 0) return {0};
  const auto wanted = static_cast<float>(largest / levels);
  const auto bits = static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, wanted) >> 16);
  base::bf16 scale{bits < kSmallestNormal ? kSmallestNormal : bits};
  while (static_cast<double>(base::to_float(scale)) * levels < largest) ++scale.bits;
  return scale;
}

// Returns the integer of `value`; `inverse` is 1 / scale.
template <class T>
BASE_HOST_DEVICE int quantized_level(T value, T inverse, int levels, float noise) {
  using std::floor;
  const int level = static_cast<int>(floor(value * inverse + static_cast<T>(noise)));
  return level < -levels ? -levels : level > levels ? levels : level;
}

// Returns the integer of 4 bits in the low half of `bits`.
BASE_HOST_DEVICE int signed_half(int bits) { return ((bits & 15) ^ 8) - 8; }

}  // namespace ops
}  // namespace engine
