// The end of a training step on a CUDA device: loss scaling, clipping, the update, all from numbers
// in device memory.
//
// Pointers to StepNumbers and StepControl are device memory. Calls throw Error on a context of the
// CPU; they only put work on the context's stream. Gradients, values and optimizer state are f32,
// spans of equal length; gaps of zeros stay zero.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/optim_step/optimizer_step.h"
#include "engine/ops/optim_step/step_numbers.h"

namespace engine::ops {

// dloss_rows (f32) = loss_gradient * loss_scale, the gradient that backward starts from.
void fill_loss_gradient(KernelContext& context, const StepNumbers* numbers,
                        const StepControl* control, TensorView dloss_rows);

// What becomes of the step's gradients, in two parts between which ranks may take the greatest of
// their `skip`. find_overflow: squared_norm (in f64, in sum_of_squares()'s order and with its
// bits), and with loss scaling on
//   skip = 1 where it is not finite. Without scaling and clipping it does not read the gradients.
// settle_step: gradient_scale = clip factor / loss_scale, where the clip factor is clip_factor()'s
// of the unscaled gradients;
//   then the counters and the scale of the next step, by the rule. Without loss scaling no step is
//   ever skipped: gradients that are not finite are not hidden.
std::size_t find_overflow_scratch_bytes(std::int64_t count);
void find_overflow(KernelContext& context, const LossScaleRule& rule, TensorView gradients,
                   const StepNumbers* numbers, StepControl* control);
void settle_step(KernelContext& context, const LossScaleRule& rule, const StepNumbers* numbers,
                 StepControl* control);
// Both, where no rank has to be asked.
void finish_gradients(KernelContext& context, const LossScaleRule& rule, TensorView gradients,
                      const StepNumbers* numbers, StepControl* control);

// update() (optimizer_step.h) with the same roundings, after settle_step(). What set(UpdateTime)
// replaces in `step` plays no part: rate, scale and count are the numbers' and the control's; its
// other options must not change while a graph lives. A skipped step changes nothing.
struct DeviceUpdate {
  UpdateStep step;
  const StepNumbers* numbers;
  const StepControl* control;
  TensorView gradient;
  std::span<const TensorView> states;
  TensorView value;
  TensorView half_copy{};  // bf16 or f16: becomes the rounded value in the same pass
  double rate = 1;         // times the numbers' learning rate
};
void update_on_device(KernelContext& context, const DeviceUpdate& o);

// half_copy (bf16 or f16) = values (f32), rounded to nearest: after weights came from elsewhere
// than an update.
void copy_to_half(KernelContext& context, TensorView values, TensorView half_copy);

}  // namespace engine::ops
