// fill_pixels() on a CUDA device. pixel_vectors.h describes and pixel_vectors.cc checks the
// operands. Bound by bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

void fill_pixels(KernelContext& context, const TensorView& vector, const TensorView& y);

}  // namespace engine::ops::cuda
