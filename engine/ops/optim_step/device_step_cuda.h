// The end of a step on a CUDA device. device_step.h describes and device_step.cc checks the
// operands.
#pragma once

#include "engine/ops/optim_step/device_step.h"

namespace engine::ops::cuda {

std::size_t find_overflow_scratch_bytes(std::int64_t count);
void fill_loss_gradient(KernelContext& context, const StepNumbers* numbers,
                        const StepControl* control, TensorView dloss_rows);
void find_overflow(KernelContext& context, const LossScaleRule& rule, TensorView gradients,
                   const StepNumbers* numbers, StepControl* control);
void settle_step(KernelContext& context, const LossScaleRule& rule, const StepNumbers* numbers,
                 StepControl* control);
void restore_if_skipped(KernelContext& context, const StepControl* control, TensorView from,
                        TensorView to);
void scale_on_device(KernelContext& context, double factor, TensorView from, TensorView to);
void subtract_on_device(KernelContext& context, TensorView a, TensorView b, TensorView to);
void combine_on_device(KernelContext& context, double x, TensorView a, double y, TensorView b,
                       TensorView to);

}  // namespace engine::ops::cuda
