// Optimizer steps on a CUDA device; operands as in device_step.h, checked there.
#pragma once

#include "engine/ops/optim_step/device_step.h"

namespace engine::ops::cuda {

void update_on_device(KernelContext& context, const DeviceUpdate& o);
void copy_to_half(KernelContext& context, TensorView values, TensorView half_copy);

}  // namespace engine::ops::cuda
