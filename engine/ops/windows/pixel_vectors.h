// Writes one vector to every pixel: y [..., c] = v [c], which has the dtype of parameters' vectors.
// Bound by bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

void fill_pixels(KernelContext& context, const TensorView& vector, const TensorView& y);

}  // namespace engine::ops
