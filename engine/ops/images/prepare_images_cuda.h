// Conversion of images from bytes on a CUDA device. prepare_images.h describes and
// prepare_images.cc checks the operands. Bound by bytes.
#pragma once

#include "engine/ops/images/prepare_images.h"

namespace engine::ops::cuda {

void prepare_images(KernelContext& context, const PrepareImages& o);

}  // namespace engine::ops::cuda
