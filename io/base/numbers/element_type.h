// Element types of arrays in memory, in files and in messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "io/base/numbers/half.h"

namespace base {

// Files and messages have separate codes (io/checkpoint/checkpoint_format.h,
// backends/control_word.h): no value of this enum is stored or sent.
enum class DType : std::uint8_t { kF32, kF64, kI64, kU8, kF16, kBF16, kI32 };

inline constexpr DType kDTypes[] = {DType::kF32, DType::kF64,  DType::kI64, DType::kU8,
                                    DType::kF16, DType::kBF16, DType::kI32};

constexpr std::size_t size_of(DType type) {  // bytes of one element
  switch (type) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

// "f32", "f64", "i64", "u8", "f16", "bf16", "i32"
constexpr std::string_view to_string(DType type) {
  switch (type) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kI64:
      return "i64";
    case DType::kU8:
      return "u8";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "i32";
  }
  return "?";
}

// Returns the type with this name, if there is one.
constexpr std::optional<DType> parse_dtype(std::string_view name) {
  for (const DType type : kDTypes)
    if (to_string(type) == name) return type;
  return std::nullopt;
}

constexpr bool is_half(DType type) { return type == DType::kBF16 || type == DType::kF16; }
constexpr bool is_floating(DType type) {
  return type == DType::kF32 || type == DType::kF64 || is_half(type);
}

// DTypeOf<float>::value and so on: the type that corresponds to the C++ type T.
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
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::kF16;
};

}  // namespace base
