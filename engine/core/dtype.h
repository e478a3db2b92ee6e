// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "io/base/half.h"

namespace engine {

using base::bf16;
using base::f16;
using base::from_float;
using base::to_float;

// kBF16 and kF16 (io/base/half.h) are storage of activations and of copies of weights on CUDA
// devices.
enum class DType : std::uint8_t { kF32, kF64, kI32, kI64, kU8, kBF16, kF16 };

std::size_t size_of(DType dtype);  // bytes of one element
constexpr bool is_half(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }
// What parameters are kept in where activations are stored as `compute`: f32 beside the halves,
// else the same.
constexpr DType state_dtype(DType compute) { return is_half(compute) ? DType::kF32 : compute; }
std::string_view to_string(DType dtype);  // "f32", "f64", "i32", "i64", "u8", "bf16", "f16"

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::kU8;
};

}  // namespace engine
