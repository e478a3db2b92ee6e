// Sizes and names of the element types.
#include "engine/core/dtype.h"

#include "engine/core/error.h"

namespace engine {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF64:
      return 8;
    case DType::kI32:
      return 4;
    case DType::kI64:
      return 8;
    case DType::kU8:
      return 1;
    case DType::kBF16:
    case DType::kF16:
      return 2;
  }
  throw Error("internal: unknown dtype");
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kU8:
      return "u8";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
  }
  throw Error("internal: unknown dtype");
}

}  // namespace engine
