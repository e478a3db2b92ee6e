// Element types by NumPy's names.
#pragma once

#include <optional>
#include <string_view>

#include "io/base/numbers/element_type.h"

namespace base {

// Returns NumPy's name, e.g. "float32"; bfloat16 is that of extensions of NumPy.
constexpr std::string_view numpy_name(DType type) {
  switch (type) {
    case DType::kF32:
      return "float32";
    case DType::kF64:
      return "float64";
    case DType::kI64:
      return "int64";
    case DType::kU8:
      return "uint8";
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    case DType::kI32:
      return "int32";
  }
  return "?";
}

// Returns the type that NumPy calls `name`, if there is one.
constexpr std::optional<DType> parse_numpy_name(std::string_view name) {
  for (const DType type : kDTypes)
    if (numpy_name(type) == name) return type;
  return std::nullopt;
}

}  // namespace base
