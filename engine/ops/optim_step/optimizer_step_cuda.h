// Optimizer steps on a CUDA device; operands as in device_step.h, checked there.
#pragma once

#include "engine/ops/optim_step/device_step.h"

namespace engine::ops::cuda {

void update(KernelContext& context, const UpdateStep& step, const StepNumbers* numbers,
            const StepControl* control, TensorView gradient, std::span<const TensorView> states,
            TensorView value, TensorView half_copy);
void copy_to_half(KernelContext& context, TensorView values, TensorView half_copy);

}  // namespace engine::ops::cuda
