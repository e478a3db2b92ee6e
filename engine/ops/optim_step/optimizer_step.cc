// Checks and dispatches the optimizer steps.
#include "engine/ops/optim_step/optimizer_step.h"

#include <algorithm>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/optim_step/optimizer_step_cpu.h"
#include "engine/ops/optim_step/optimizer_step_reference.h"

namespace engine::ops {
namespace {

void check_state(std::string_view kernel, std::string_view operand, const TensorView& state,
                 const TensorView& value) {
  check_dtype(kernel, operand, state, value.dtype);
  check_count(kernel, operand, state, value.count());
}

void check_on_cpu(std::string_view kernel, const KernelContext& context) {
  check_context(kernel, context);
  require(!on_cuda(context),
          "optimizer_step.h computes on the CPU; device_step.h has what CUDA devices need");
}

// `step` is the alternative that o.step holds.
template <class Step>
void update_f32(KernelContext& context, const Step& step, const Update& o) {
  float* state[Step::kStates + 1] = {};
  for (int s = 0; s < Step::kStates; ++s)
    state[s] = o.states[static_cast<std::size_t>(s)].template as<float>();
  const UpdateKernel<Step>& kernel = isa_table_of_optimizer_step_table();
  kernel.run(step.template numbers<float>(), o.gradient.as<float>(), state, o.value.count(),
             o.value.as<float>(), *context.threads);
}

// Runs plain loops over the same element functions.
template <class Step>
void update_f64(KernelContext& context, const Step& step, const Update& o) {
  const auto k = step.template numbers<double>();
  const auto* g = o.gradient.as<double>();
  auto* w = o.value.as<double>();
  double* state[Step::kStates + 1] = {};
  for (int s = 0; s < Step::kStates; ++s)
    state[s] = o.states[static_cast<std::size_t>(s)].template as<double>();
  context.threads->run(o.value.count(), [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i) {
      double here[Step::kStates + 1] = {};
      for (int s = 0; s < Step::kStates; ++s) here[s] = state[s][i];
      Step::template update<PlainMath<double>>(k, g[i], here, w[i]);
      for (int s = 0; s < Step::kStates; ++s) state[s][i] = here[s];
    }
  });
}

}  // namespace

void update(KernelContext& context, const Update& o) {
  std::visit(
      [&]<class Step>(const Step& step) {
        check_floating(Step::kName, "value", o.value);
        check_state(Step::kName, "gradient", o.gradient, o.value);
        require(o.states.size() == static_cast<std::size_t>(Step::kStates),
                "an optimizer step has other states");
        for (const TensorView& state : o.states) check_state(Step::kName, "state", state, o.value);
        check_on_cpu(Step::kName, context);
        dispatch_dtype(
            o.value.dtype, [&] { update_f64(context, step, o); },
            [&] { update_f32(context, step, o); });
      },
      o.step);
}

void sgd_step(KernelContext& context, const SgdStep& step, TensorView gradient, TensorView velocity,
              TensorView value) {
  const TensorView states[] = {velocity};
  update(context, {.step = any_sgd(step),
                   .gradient = gradient,
                   .states = std::span(states).first(step.momentum != 0 ? 1u : 0u),
                   .value = value});
}

void adamw_step(KernelContext& context, const AdamwStep& step, TensorView gradient,
                TensorView first_moment, TensorView second_moment, TensorView value) {
  require(step.count >= 1, "adamw_step: count starts at 1");
  const TensorView states[] = {first_moment, second_moment};
  update(context, {.step = step, .gradient = gradient, .states = states, .value = value});
}

namespace {

// Sums the blocks from `start` on.
void sum_blocks(KernelContext& context, const TensorView& values, std::int64_t start,
                std::span<double> sums) {
  const auto call = [&]<class T>(T) {
    context.threads->run(std::ssize(sums), [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t b = first; b < last; ++b) {
        const std::int64_t offset = (start + b) * reference::kSumBlock;
        sums[static_cast<std::size_t>(b)] = reference::sum_of_squares_block(
            static_cast<const T*>(values.data) + offset,
            std::min(reference::kSumBlock, values.count() - offset));
      }
    });
  };
  dispatch_dtype(
      values.dtype, [&] { call(double{}); }, [&] { call(float{}); });
}

std::int64_t block_count(const TensorView& values) {
  return (values.count() + reference::kSumBlock - 1) / reference::kSumBlock;
}

}  // namespace

double sum_of_squares(KernelContext& context, TensorView values) {
  check_floating("sum_of_squares", "values", values);
  check_on_cpu("sum_of_squares", context);
  // The block sums of a stretch are stored here until they are added in order.
  constexpr std::int64_t kStretch = 512;
  double sums[kStretch];
  const std::int64_t blocks = block_count(values);
  double total = 0;
  for (std::int64_t start = 0; start < blocks; start += kStretch) {
    const std::span here =
        std::span(sums).first(static_cast<std::size_t>(std::min(kStretch, blocks - start)));
    sum_blocks(context, values, start, here);
    for (const double sum : here) total += sum;
  }
  return total;
}

void sums_of_squares(KernelContext& context, TensorView values, std::span<double> sums) {
  static_assert(kSquaresBlock == reference::kSumBlock);
  check_floating("sums_of_squares", "values", values);
  check_on_cpu("sums_of_squares", context);
  require(std::ssize(sums) == block_count(values), "sums_of_squares: one sum for each block");
  sum_blocks(context, values, 0, sums);
}

void scale(KernelContext& context, double factor, TensorView values) {
  check_floating("scale", "values", values);
  check_on_cpu("scale", context);
  const auto call = [&]<class T>(T) {
    T* value = static_cast<T*>(values.data);
    const T by = static_cast<T>(factor);
    context.threads->run(values.count(), [=](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) value[i] *= by;
    });
  };
  dispatch_dtype(
      values.dtype, [&] { call(double{}); }, [&] { call(float{}); });
}

}  // namespace engine::ops
