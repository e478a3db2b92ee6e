// Optimizer steps on the CPU (CUDA devices: device_step.h): one pass over flat parameter memory.
// Spans have equal length and dtype; gaps between tensors contain zeros and stay zero.
#pragma once

#include <span>
#include <variant>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/optim_step/update_list.h"

namespace engine::ops {

template <class... Steps>
std::variant<Steps...> any_step(StepList<Steps...>);
using UpdateStep = decltype(any_step(UpdateSteps{}));

// Updates `value` and the step's states once. f32 (the same bits for every number of threads and
// every instruction set) or f64. Throws ShapeError.
struct Update {
  UpdateStep step;
  TensorView gradient;
  std::span<const TensorView> states;  // the step's states in its order
  TensorView value;
};
void update(KernelContext& context, const Update& o);

// update() for SGD, whose `velocity` is absent if momentum == 0, and for AdamW.
void sgd_step(KernelContext& context, const SgdStep& step, TensorView gradient, TensorView velocity,
              TensorView value);
void adamw_step(KernelContext& context, const AdamwStep& step, TensorView gradient,
                TensorView first_moment, TensorView second_moment, TensorView value);

// Returns SGD as a step with or without a velocity.
inline UpdateStep any_sgd(const SgdStep& step) {
  if (step.momentum != 0) return SgdUpdate<true>{step};
  return SgdUpdate<false>{step};
}

// Returns the sum of squares in f64, with the same bits for any number of threads (fixed blocks of
// 4096, summed in order).
double sum_of_squares(KernelContext& context, TensorView values);

// Returns the sums of the individual blocks, as sum_of_squares() adds them.
inline constexpr std::int64_t kSquaresBlock = 4096;
void sums_of_squares(KernelContext& context, TensorView values, std::span<double> sums);

// values *= factor
void scale(KernelContext& context, double factor, TensorView values);

}  // namespace engine::ops
