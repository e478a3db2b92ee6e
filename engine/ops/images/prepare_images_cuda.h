// Images from bytes on a CUDA device; operands as in prepare_images.h, checked there. Bound: bytes.
#pragma once

#include "engine/ops/images/prepare_images.h"

namespace engine::ops::cuda {

void prepare_images(KernelContext& context, const PrepareImages& o);

}  // namespace engine::ops::cuda
