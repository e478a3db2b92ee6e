// The end of a training step on a CUDA device: loss scaling, clipping and the update, all
// controlled by numbers in device memory.
//
// StepNumbers and StepControl are in device memory. Calls throw Error for a context of the CPU;
// they only enqueue work on the context's stream. Gradients, values and optimizer state are spans
// of equal length, all f32 or all f64; gaps of zeros stay zero.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/optim_step/optimizer_step.h"
#include "engine/ops/optim_step/step_numbers.h"

namespace engine::ops {

// dloss_rows = loss_gradient * loss_scale, the initial gradient of backward; in f64 without
// scaling.
void fill_loss_gradient(KernelContext& context, const StepNumbers* numbers,
                        const StepControl* control, TensorView dloss_rows);

// Process the step's gradients in two parts, between which ranks may take the maximum of their
// `skip`. find_overflow computes squared_norm (in f64, in the order and with the bits of
// sum_of_squares()), and with loss scaling sets skip = 1 if it is not finite. Without scaling and
// clipping it does not read the gradients.
// settle_step computes gradient_scale = clip factor / loss_scale, where clip_factor() is applied to
// the unscaled gradients; then the counters and the scale of the next step, by the rule. Without
// loss scaling no step is ever skipped: non-finite gradients are not hidden.
std::size_t find_overflow_scratch_bytes(std::int64_t count);
void find_overflow(KernelContext& context, const LossScaleRule& rule, TensorView gradients,
                   const StepNumbers* numbers, StepControl* control);
void settle_step(KernelContext& context, const LossScaleRule& rule, const StepNumbers* numbers,
                 StepControl* control);
// to = from if the step was settled as skipped, to leave no trace of it in what forward changes.
// Views of equal size in device memory, whose bytes are a multiple of 4.
void restore_if_skipped(KernelContext& context, const StepControl* control, TensorView from,
                        TensorView to);
// Calls both, for runs in which no other rank takes part in the decision.
void finish_gradients(KernelContext& context, const LossScaleRule& rule, TensorView gradients,
                      const StepNumbers* numbers, StepControl* control);

// update() (optimizer_step.h) with the same roundings, after settle_step(). The values in `step`
// that set(UpdateTime) replaces are ignored: rate, scale and count come from the numbers and the
// control; its other options must not change during the lifetime of a graph. A skipped step changes
// nothing.
struct DeviceUpdate {
  UpdateStep step;
  const StepNumbers* numbers;
  const StepControl* control;
  TensorView gradient;
  std::span<const TensorView> states;
  TensorView value;
  TensorView half_copy{};  // bf16 or f16: receives the rounded value in the same pass
  double rate = 1;         // factor of the numbers' learning rate
};
void update_on_device(KernelContext& context, const DeviceUpdate& o);

// half_copy (bf16 or f16) = values (f32), rounded to nearest; used after weights have changed other
// than by an update.
void copy_to_half(KernelContext& context, TensorView values, TensorView half_copy);

// For averagings: to = factor * from; to = a - b; to = x * a + y * b. Factors are rounded to their
// dtype, and products before they are added. Spans of equal length; `to` may be one of the others.
void scale_on_device(KernelContext& context, double factor, TensorView from, TensorView to);
void subtract_on_device(KernelContext& context, TensorView a, TensorView b, TensorView to);
void combine_on_device(KernelContext& context, double x, TensorView a, double y, TensorView b,
                       TensorView to);

}  // namespace engine::ops
