// 16-bit floating-point numbers as storage: bf16 (the upper half of a binary32) and f16 (IEEE
// binary16), and their conversions, in host code and in kernels. Arithmetic is float32.
//
// Conversions give the same bits on every machine and instruction set. A NaN stays a NaN and
// becomes quiet when converted to 16 bits: host code keeps its sign and the upper bits of the
// payload, a GPU produces its hardware's single NaN.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define BASE_HOST_DEVICE __host__ __device__ __forceinline__
#else
// Always inlined: a copy that the linker shares could be compiled for another instruction set than
// that of the caller's processor.
#define BASE_HOST_DEVICE [[gnu::always_inline]] inline
#endif

namespace base {

struct alignas(2) bf16 {
  std::uint16_t bits;
};
struct alignas(2) f16 {
  std::uint16_t bits;
};

BASE_HOST_DEVICE float to_float(float value) { return value; }
BASE_HOST_DEVICE float to_float(bf16 value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.bits) << 16);
}
BASE_HOST_DEVICE float to_float(f16 value) {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(value.bits));
#else
  // There are no branches, so that loops over halves vectorize: all three cases are computed, then
  // one is selected.
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000) << 16,
                      rest = value.bits & 0x7fff;
  // Normal numbers: the exponent's bias changes from 15 to 127. Subnormal ones: 2^-24 times an
  // integer, exact in binary32.
  const std::uint32_t normal = (rest << 13) + (112u << 23);
  const std::uint32_t special = (rest << 13) | 0x7f800000;
  const auto subnormal = __builtin_bit_cast(
      std::uint32_t, static_cast<float>(static_cast<std::int32_t>(rest)) * 0x1p-24f);
  const std::uint32_t magnitude = rest >= 0x7c00 ? special : rest < 0x0400 ? subnormal : normal;
  return __builtin_bit_cast(float, sign | magnitude);
#endif
}

// Rounds to nearest, ties to even. Values beyond the format's range become infinite.
template <class T>
BASE_HOST_DEVICE T from_float(float value);

template <>
BASE_HOST_DEVICE float from_float<float>(float value) {
  return value;
}
template <>
BASE_HOST_DEVICE bf16 from_float<bf16>(float value) {
#if defined(__CUDA_ARCH__)
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#else
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40;
  return {static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded)};
#endif
}
template <>
BASE_HOST_DEVICE f16 from_float<f16>(float value) {
#if defined(__CUDA_ARCH__)
  return {__half_as_ushort(__float2half_rn(value))};
#else
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  const std::uint32_t normal = (magnitude - (112u << 23) + 0x0fff + ((magnitude >> 13) & 1)) >> 13;
  // Below 2^-14: adding 0.5 leaves the subnormal's integer in the low bits, rounded by the
  // addition.
  const std::uint32_t subnormal =
      __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) - 0x3f000000;
  const std::uint32_t nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  const std::uint32_t large = magnitude > 0x7f800000 ? nan : 0x7c00;
  const std::uint32_t result = magnitude >= 0x47800000  ? large
                               : magnitude < 0x38800000 ? subnormal
                                                        : normal;
  return {static_cast<std::uint16_t>(sign | result)};
#endif
}

}  // namespace base
