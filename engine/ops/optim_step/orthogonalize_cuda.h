// Newton-Schulz iterations on a CUDA device. orthogonalize.h describes and orthogonalize.cc checks
// the operands.
#pragma once

#include <cstddef>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// The iterations' coefficients on every device.
struct NewtonSchulz {
  static constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315, kEps = 1e-7;
};

}  // namespace engine::ops

namespace engine::ops::cuda {

std::size_t orthogonalize_scratch_bytes(std::int64_t rows, std::int64_t columns, DType dtype);
void orthogonalize(KernelContext& context, int steps, TensorView matrix);

}  // namespace engine::ops::cuda
