// Operands of top-k sums on a CUDA device.
#pragma once

#include "engine/core/tensor_view.h"

namespace engine::ops {

// A contribution of a rank, and what it has not sent so far: spans of equal length, f32 or f64.
struct TopKOperands {
  TensorView values, error;
};

}  // namespace engine::ops
