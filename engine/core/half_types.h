// 16-bit floating-point numbers as storage: bf16 (the upper half of a binary32) and f16 (IEEE
// binary16). Arithmetic is float32. Usable in host code and in kernels.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define ENGINE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define ENGINE_HOST_DEVICE inline
#endif

namespace engine {

struct alignas(2) bf16 {
  std::uint16_t bits;
};
struct alignas(2) f16 {
  std::uint16_t bits;
};

namespace half_detail {
ENGINE_HOST_DEVICE std::uint32_t bits_of(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}
ENGINE_HOST_DEVICE float float_of(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}
}  // namespace half_detail

ENGINE_HOST_DEVICE float to_float(float value) { return value; }
ENGINE_HOST_DEVICE float to_float(bf16 value) {
  return half_detail::float_of(std::uint32_t{value.bits} << 16);
}
ENGINE_HOST_DEVICE float to_float(f16 value) {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(value.bits));
#else
  const std::uint32_t sign = std::uint32_t{value.bits & 0x8000u} << 16,
                      exponent = (value.bits >> 10) & 31u;
  std::uint32_t fraction = value.bits & 0x3ffu;
  if (exponent == 31) return half_detail::float_of(sign | 0x7f800000u | (fraction << 13));
  if (exponent > 0)
    return half_detail::float_of(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float small = static_cast<float>(fraction) * 0x1p-24f;  // subnormal, exact
  return sign != 0 ? -small : small;
#endif
}

// Round to nearest, ties to even, as the hardware does. Values beyond f16's range become infinite.
template <class T>
ENGINE_HOST_DEVICE T from_float(float value);

template <>
ENGINE_HOST_DEVICE float from_float<float>(float value) {
  return value;
}
template <>
ENGINE_HOST_DEVICE bf16 from_float<bf16>(float value) {
#if defined(__CUDA_ARCH__)
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#else
  const std::uint32_t bits = half_detail::bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
#endif
}
template <>
ENGINE_HOST_DEVICE f16 from_float<f16>(float value) {
#if defined(__CUDA_ARCH__)
  return {__half_as_ushort(__float2half_rn(value))};
#else
  const std::uint32_t bits = half_detail::bits_of(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 leaves the rounded multiple of 2^-24 in
                                  // the lowest bits
    const std::uint32_t shifted = half_detail::bits_of(half_detail::float_of(magnitude) + 0.5f);
    return {static_cast<std::uint16_t>(sign | (shifted - 0x3f000000u))};
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
#endif
}

}  // namespace engine
