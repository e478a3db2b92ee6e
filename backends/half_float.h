// Conversions between binary32 and the two 16-bit formats, to the nearest, ties to even; NaN stays
// NaN and becomes quiet. Branchless where it matters, so that loops over them vectorize, and the
// same bits on every machine.
#pragma once

#include <cstdint>

// Always inlined: a copy that the linker shared could have been compiled for another instruction
// set.
#define ENGINE_HALF_INLINE [[gnu::always_inline]] inline

namespace backends {

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

ENGINE_HALF_INLINE float to_float(BFloat16 v) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(v.bits) << 16);
}

ENGINE_HALF_INLINE BFloat16 to_bfloat16(float v) {
  const auto bits = __builtin_bit_cast(std::uint32_t, v);
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40;
  return {static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded)};
}

ENGINE_HALF_INLINE float to_float(Float16 v) {
  const std::uint32_t sign = static_cast<std::uint32_t>(v.bits & 0x8000) << 16,
                      rest = v.bits & 0x7fff;
  // Normal numbers: the exponent's bias goes from 15 to 127. Subnormal ones: 2^-24 times an
  // integer, exact in binary32.
  const std::uint32_t normal = (rest << 13) + (112u << 23);
  const std::uint32_t special = (rest << 13) | 0x7f800000;
  const auto subnormal = __builtin_bit_cast(
      std::uint32_t, static_cast<float>(static_cast<std::int32_t>(rest)) * 0x1p-24f);
  const std::uint32_t magnitude = rest >= 0x7c00 ? special : rest < 0x0400 ? subnormal : normal;
  return __builtin_bit_cast(float, sign | magnitude);
}

ENGINE_HALF_INLINE Float16 to_float16(float v) {
  const auto bits = __builtin_bit_cast(std::uint32_t, v);
  const std::uint32_t sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  const std::uint32_t normal = (magnitude - (112u << 23) + 0x0fff + ((magnitude >> 13) & 1)) >> 13;
  // Below 2^-14: adding 0.5 leaves the subnormal's integer in the low bits, rounded by the addition
  // itself.
  const std::uint32_t subnormal =
      __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) - 0x3f000000;
  const std::uint32_t nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  const std::uint32_t large = magnitude > 0x7f800000 ? nan : 0x7c00;
  const std::uint32_t result = magnitude >= 0x47800000  ? large
                               : magnitude < 0x38800000 ? subnormal
                                                        : normal;
  return {static_cast<std::uint16_t>(sign | result)};
}

}  // namespace backends
