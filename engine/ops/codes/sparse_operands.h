// Operands of sums of sparse codes on a CUDA device.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"

namespace engine::ops {

// Common to all calls: the code.
struct SparseSpan {
  int bits = 8;           // of a value: 8, 4 or 2
  std::int64_t kept = 1;  // sent elements of a whole block
};

// A contribution of a rank, and the part that it does not send: spans of equal length and dtype.
struct SparseOperands {
  TensorView values, error;
  TensorView rest;           // may be `error`
  TensorView velocity = {};  // empty: no momentum
  double decay = 1, momentum = 0;
};

}  // namespace engine::ops
