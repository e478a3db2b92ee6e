// Checks and dispatch of the optimizer steps.
#include "engine/ops/optim_step/optimizer_step.h"

#include <algorithm>
#include <cmath>

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

}  // namespace

void sgd_step(KernelContext& context, const SgdStep& step, TensorView gradient, TensorView velocity,
              TensorView value) {
  constexpr std::string_view kName = "sgd_step";
  check_floating(kName, "value", value);
  check_state(kName, "gradient", gradient, value);
  if (step.momentum != 0) check_state(kName, "velocity", velocity, value);
  check_on_cpu(kName, context);
  if (value.dtype == DType::kF32) {
    const SgdNumbers numbers{static_cast<float>(step.lr),
                             static_cast<float>(step.momentum),
                             static_cast<float>(step.weight_decay),
                             static_cast<float>(step.gradient_scale),
                             step.nesterov,
                             step.first};
    isa_table_of_optimizer_step_table().sgd(numbers, gradient.as<float>(),
                                            step.momentum != 0 ? velocity.as<float>() : nullptr,
                                            value.count(), value.as<float>(), *context.threads);
    return;
  }
  double* state = step.momentum != 0 ? velocity.as<double>() : nullptr;
  context.threads->run(value.count(), [&](std::int64_t first, std::int64_t last, int) {
    reference::sgd_step(step, static_cast<const double*>(gradient.data) + first,
                        state != nullptr ? state + first : nullptr, last - first,
                        static_cast<double*>(value.data) + first);
  });
}

void adamw_step(KernelContext& context, const AdamwStep& step, TensorView gradient,
                TensorView first_moment, TensorView second_moment, TensorView value) {
  constexpr std::string_view kName = "adamw_step";
  check_floating(kName, "value", value);
  check_state(kName, "gradient", gradient, value);
  check_state(kName, "first_moment", first_moment, value);
  check_state(kName, "second_moment", second_moment, value);
  check_on_cpu(kName, context);
  require(step.count >= 1, "adamw_step: count starts at 1");
  if (value.dtype == DType::kF32) {
    const double bias1 = 1 - std::pow(step.beta1, static_cast<double>(step.count));
    const double bias2 = 1 - std::pow(step.beta2, static_cast<double>(step.count));
    const AdamwNumbers numbers{static_cast<float>(1 - step.lr * step.weight_decay),
                               static_cast<float>(1 - step.beta1),
                               static_cast<float>(step.beta2),
                               static_cast<float>(1 - step.beta2),
                               static_cast<float>(step.lr / bias1),
                               static_cast<float>(std::sqrt(bias2)),
                               static_cast<float>(step.eps),
                               static_cast<float>(step.gradient_scale)};
    isa_table_of_optimizer_step_table().adamw(numbers, gradient.as<float>(),
                                              first_moment.as<float>(), second_moment.as<float>(),
                                              value.count(), value.as<float>(), *context.threads);
    return;
  }
  context.threads->run(value.count(), [&](std::int64_t first, std::int64_t last, int) {
    reference::adamw_step(step, static_cast<const double*>(gradient.data) + first,
                          static_cast<double*>(first_moment.data) + first,
                          static_cast<double*>(second_moment.data) + first, last - first,
                          static_cast<double*>(value.data) + first);
  });
}

double sum_of_squares(KernelContext& context, TensorView values) {
  check_floating("sum_of_squares", "values", values);
  check_on_cpu("sum_of_squares", context);
  // Block sums of a stretch wait here until they are added in order.
  constexpr std::int64_t kStretch = 512;
  double sums[kStretch];
  const std::int64_t blocks = (values.count() + reference::kSumBlock - 1) / reference::kSumBlock;
  double total = 0;
  const auto call = [&]<class T>(T) {
    for (std::int64_t start = 0; start < blocks; start += kStretch) {
      const std::int64_t here = std::min(kStretch, blocks - start);
      context.threads->run(here, [&](std::int64_t first, std::int64_t last, int) {
        for (std::int64_t b = first; b < last; ++b) {
          const std::int64_t offset = (start + b) * reference::kSumBlock;
          sums[b] = reference::sum_of_squares_block(
              static_cast<const T*>(values.data) + offset,
              std::min(reference::kSumBlock, values.count() - offset));
        }
      });
      for (std::int64_t b = 0; b < here; ++b) total += sums[b];
    }
  };
  values.dtype == DType::kF32 ? call(float{}) : call(double{});
  return total;
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
  values.dtype == DType::kF32 ? call(float{}) : call(double{});
}

}  // namespace engine::ops
