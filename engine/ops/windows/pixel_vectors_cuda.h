// fill_pixels() on a CUDA device. pixel_vectors.h describes and pixel_vectors.cc checks the
// operands. Bound by bytes.
#pragma once

#include "engine/ops/windows/pixel_vectors.h"

namespace engine::ops::cuda {

void fill_pixels(KernelContext& context, const TensorView& vector, const TensorView& y);

}  // namespace engine::ops::cuda
