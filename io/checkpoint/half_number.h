// IEEE binary16 and bfloat16 to and from float: bit patterns, for files.
#pragma once

#include <bit>
#include <cstdint>

namespace io {

constexpr float float_of_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

constexpr float float_of_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16,
                      exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float value = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal halves are exact floats
  return sign != 0 ? -value : value;
}

// Rounded to nearest, ties to even; a NaN stays one.
constexpr std::uint16_t bf16_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// The same; beyond 65504 + half a step it becomes infinite.
constexpr std::uint16_t f16_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000)
    return static_cast<std::uint16_t>(sign | 0x7E00 | (magnitude >> 13 & 0x1FF));
  if (magnitude >= 0x47800000) return static_cast<std::uint16_t>(sign | 0x7C00);  // 2^16 and more
  if (magnitude < 0x33000000) return sign;  // less than half of 2^-24
  const std::uint32_t exponent = magnitude >> 23;
  const std::uint32_t fraction = (magnitude & 0x7FFFFF) | 0x800000;
  // Bits that fall off: 13, and more below 2^-14, where halves are subnormal.
  const std::uint32_t shift = exponent < 113 ? 126 - exponent : 13;
  const std::uint32_t kept = fraction >> shift, rest = fraction & ((1u << shift) - 1),
                      tie = 1u << (shift - 1);
  const std::uint32_t rounded = kept + (rest > tie || (rest == tie && (kept & 1) != 0) ? 1 : 0);
  const std::uint32_t base =
      exponent < 113 ? 0 : (exponent - 113) << 10;  // the hidden bit counts the exponent up by one
  return static_cast<std::uint16_t>(sign | (base + rounded));
}

}  // namespace io
