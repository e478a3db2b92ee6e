// Optimizer steps on a CUDA device. device_step.h describes and device_step.cc checks the operands.
#pragma once

#include "engine/ops/optim_step/device_step.h"

namespace engine::ops::cuda {

void update_on_device(KernelContext& context, const DeviceUpdate& o);
void copy_to_half(KernelContext& context, TensorView values, TensorView half_copy);

}  // namespace engine::ops::cuda
