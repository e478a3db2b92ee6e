// Names and sizes of the types and operations of collectives.
#include "backends/communicator.h"

namespace backends {

std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::kF32:
      return 4;
    case DataType::kF64:
    case DataType::kI64:
      return 8;
    case DataType::kU8:
      return 1;
    case DataType::kF16:
    case DataType::kBF16:
      return 2;
  }
  return 0;
}

std::string_view to_string(DataType type) {
  switch (type) {
    case DataType::kF32:
      return "f32";
    case DataType::kF64:
      return "f64";
    case DataType::kI64:
      return "i64";
    case DataType::kU8:
      return "u8";
    case DataType::kF16:
      return "f16";
    case DataType::kBF16:
      return "bf16";
  }
  return "?";
}

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
  }
  return "?";
}

}  // namespace backends
