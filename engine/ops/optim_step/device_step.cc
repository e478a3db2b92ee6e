// Checks and dispatches the end of a step on a CUDA device.
#include "engine/ops/optim_step/device_step.h"

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "engine/ops/common/dispatch.h"
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
  check_dtype(kernel, operand, view, value.dtype);
  check_count(kernel, operand, view, value.count());
}

// Checks that the operand is f32 or f64.
void check_state(std::string_view kernel, std::string_view operand, const TensorView& view) {
  check_dtype(kernel, operand, view, wide_dtype(view.dtype));
}

void check_half(std::string_view kernel, const TensorView& half_copy, const TensorView& value) {
  check_dtype(kernel, "half_copy", half_copy,
              half_copy.dtype == DType::kBF16 ? DType::kBF16 : DType::kF16);
  check_count(kernel, "half_copy", half_copy, value.count());
}

// These kernels have no version for the CPU.
template <class Cuda>
void on_device(const KernelContext& context, Cuda cuda) {
  dispatch_device(
      context.device.kind, [] {}, cuda);
}

}  // namespace

std::size_t find_overflow_scratch_bytes(std::int64_t count) {
  return dispatch_device(
      Device::Kind::kCuda, [] { return std::size_t{0}; },
      [&] { return cuda::find_overflow_scratch_bytes(count); });
}

void fill_loss_gradient(KernelContext& context, const StepNumbers* numbers,
                        const StepControl* control, TensorView dloss_rows) {
  check_on_device("fill_loss_gradient", context);
  check_state("fill_loss_gradient", "dloss_rows", dloss_rows);
  on_device(context, [&] { cuda::fill_loss_gradient(context, numbers, control, dloss_rows); });
}

void find_overflow(KernelContext& context, const LossScaleRule& rule, TensorView gradients,
                   const StepNumbers* numbers, StepControl* control) {
  check_on_device("find_overflow", context, find_overflow_scratch_bytes(gradients.count()));
  check_state("find_overflow", "gradients", gradients);
  on_device(context, [&] { cuda::find_overflow(context, rule, gradients, numbers, control); });
}

void settle_step(KernelContext& context, const LossScaleRule& rule, const StepNumbers* numbers,
                 StepControl* control) {
  check_on_device("settle_step", context);
  on_device(context, [&] { cuda::settle_step(context, rule, numbers, control); });
}

void restore_if_skipped(KernelContext& context, const StepControl* control, TensorView from,
                        TensorView to) {
  check_on_device("restore_if_skipped", context);
  require(from.bytes() == to.bytes() && to.bytes() % sizeof(std::uint32_t) == 0,
          "restore_if_skipped: the views are of equal size, in words of 4 bytes");
  on_device(context, [&] { cuda::restore_if_skipped(context, control, from, to); });
}

void finish_gradients(KernelContext& context, const LossScaleRule& rule, TensorView gradients,
                      const StepNumbers* numbers, StepControl* control) {
  find_overflow(context, rule, gradients, numbers, control);
  settle_step(context, rule, numbers, control);
}

void update_on_device(KernelContext& context, const DeviceUpdate& o) {
  const auto [name, state_count] = std::visit(
      []<class Step>(const Step&) {
        return std::pair<std::string_view, std::size_t>(Step::kName, Step::kStates);
      },
      o.step);
  check_on_device(name, context);
  check_state(name, "value", o.value);
  check_span(name, "gradient", o.gradient, o.value);
  require(o.states.size() == state_count, "an optimizer step has other states");
  for (const TensorView& state : o.states) check_span(name, "state", state, o.value);
  if (o.half_copy) {
    check_dtype(name, "value", o.value, DType::kF32);
    check_half(name, o.half_copy, o.value);
  }
  on_device(context, [&] { cuda::update_on_device(context, o); });
}

void copy_to_half(KernelContext& context, TensorView values, TensorView half_copy) {
  check_on_device("copy_to_half", context);
  check_dtype("copy_to_half", "values", values, DType::kF32);
  check_half("copy_to_half", half_copy, values);
  on_device(context, [&] { cuda::copy_to_half(context, values, half_copy); });
}

void scale_on_device(KernelContext& context, double factor, TensorView from, TensorView to) {
  check_on_device("scale", context);
  check_state("scale", "to", to);
  check_span("scale", "from", from, to);
  on_device(context, [&] { cuda::scale_on_device(context, factor, from, to); });
}

void subtract_on_device(KernelContext& context, TensorView a, TensorView b, TensorView to) {
  check_on_device("subtract", context);
  check_state("subtract", "to", to);
  check_span("subtract", "a", a, to);
  check_span("subtract", "b", b, to);
  on_device(context, [&] { cuda::subtract_on_device(context, a, b, to); });
}

void combine_on_device(KernelContext& context, double x, TensorView a, double y, TensorView b,
                       TensorView to) {
  check_on_device("combine", context);
  check_state("combine", "to", to);
  check_span("combine", "a", a, to);
  check_span("combine", "b", b, to);
  on_device(context, [&] { cuda::combine_on_device(context, x, a, y, b, to); });
}

}  // namespace engine::ops
