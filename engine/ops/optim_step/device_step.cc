// Checks and dispatch of a step's end on a CUDA device.
#include "engine/ops/optim_step/device_step.h"

#include <string>

#include "engine/core/cuda.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/optim_step/device_step_cuda.h"
#include "engine/ops/optim_step/optimizer_step_cuda.h"

namespace engine::ops {
namespace {

void check_on_device(std::string_view kernel, const KernelContext& context,
                     std::size_t scratch_bytes = 0) {
  if (!on_cuda(context)) throw Error(std::string(kernel) + ": needs a CUDA device");
  check_context(kernel, context, scratch_bytes);
}

void check_span(std::string_view kernel, std::string_view operand, const TensorView& view,
                const TensorView& value) {
  check_dtype(kernel, operand, view, DType::kF32);
  check_count(kernel, operand, view, value.count());
}

void check_half(std::string_view kernel, const TensorView& half_copy, const TensorView& value) {
  check_dtype(kernel, "half_copy", half_copy,
              half_copy.dtype == DType::kBF16 ? DType::kBF16 : DType::kF16);
  check_count(kernel, "half_copy", half_copy, value.count());
}

}  // namespace

std::size_t find_overflow_scratch_bytes(std::int64_t count) {
  if constexpr (engine::cuda::kBuilt) return cuda::find_overflow_scratch_bytes(count);
  return 0;
}

void fill_loss_gradient(KernelContext& context, const StepNumbers* numbers,
                        const StepControl* control, TensorView dloss_rows) {
  check_on_device("fill_loss_gradient", context);
  check_dtype("fill_loss_gradient", "dloss_rows", dloss_rows, DType::kF32);
  if constexpr (engine::cuda::kBuilt)
    cuda::fill_loss_gradient(context, numbers, control, dloss_rows);
}

void find_overflow(KernelContext& context, const LossScaleRule& rule, TensorView gradients,
                   const StepNumbers* numbers, StepControl* control) {
  check_on_device("find_overflow", context, find_overflow_scratch_bytes(gradients.count()));
  check_dtype("find_overflow", "gradients", gradients, DType::kF32);
  if constexpr (engine::cuda::kBuilt)
    cuda::find_overflow(context, rule, gradients, numbers, control);
}

void settle_step(KernelContext& context, const LossScaleRule& rule, const StepNumbers* numbers,
                 StepControl* control) {
  check_on_device("settle_step", context);
  if constexpr (engine::cuda::kBuilt) cuda::settle_step(context, rule, numbers, control);
}

void finish_gradients(KernelContext& context, const LossScaleRule& rule, TensorView gradients,
                      const StepNumbers* numbers, StepControl* control) {
  find_overflow(context, rule, gradients, numbers, control);
  settle_step(context, rule, numbers, control);
}

void sgd_step(KernelContext& context, const SgdStep& step, const StepNumbers* numbers,
              const StepControl* control, TensorView gradient, TensorView velocity,
              TensorView value, TensorView half_copy) {
  constexpr std::string_view kName = "sgd_step";
  check_on_device(kName, context);
  check_dtype(kName, "value", value, DType::kF32);
  check_span(kName, "gradient", gradient, value);
  if (step.momentum != 0) check_span(kName, "velocity", velocity, value);
  if (half_copy) check_half(kName, half_copy, value);
  if (step.momentum == 0) velocity = {};
  if constexpr (engine::cuda::kBuilt)
    cuda::sgd_step(context, step, numbers, control, gradient, velocity, value, half_copy);
}

void adamw_step(KernelContext& context, const AdamwStep& step, const StepNumbers* numbers,
                StepControl* control, TensorView gradient, TensorView first_moment,
                TensorView second_moment, TensorView value, TensorView half_copy) {
  constexpr std::string_view kName = "adamw_step";
  check_on_device(kName, context);
  check_dtype(kName, "value", value, DType::kF32);
  check_span(kName, "gradient", gradient, value);
  check_span(kName, "first_moment", first_moment, value);
  check_span(kName, "second_moment", second_moment, value);
  if (half_copy) check_half(kName, half_copy, value);
  if constexpr (engine::cuda::kBuilt)
    cuda::adamw_step(context, step, numbers, control, gradient, first_moment, second_moment, value,
                     half_copy);
}

void copy_to_half(KernelContext& context, TensorView values, TensorView half_copy) {
  check_on_device("copy_to_half", context);
  check_dtype("copy_to_half", "values", values, DType::kF32);
  check_half("copy_to_half", half_copy, values);
  if constexpr (engine::cuda::kBuilt) cuda::copy_to_half(context, values, half_copy);
}

}  // namespace engine::ops
