// Optimizer steps on a CUDA device; operands as in device_step.h, checked there.
#pragma once

#include "engine/ops/optim_step/device_step.h"

namespace engine::ops::cuda {

void sgd_step(KernelContext& context, const SgdStep& step, const StepNumbers* numbers,
              const StepControl* control, TensorView gradient, TensorView velocity,
              TensorView value, TensorView half_copy);
void adamw_step(KernelContext& context, const AdamwStep& step, const StepNumbers* numbers,
                StepControl* control, TensorView gradient, TensorView first_moment,
                TensorView second_moment, TensorView value, TensorView half_copy);
void copy_to_half(KernelContext& context, TensorView values, TensorView half_copy);

}  // namespace engine::ops::cuda
