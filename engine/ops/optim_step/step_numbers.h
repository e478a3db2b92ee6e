// What changes from step to step of a training on a CUDA device: plain numbers in device memory, so
// that a step captured as a graph can be started again and again.
#pragma once

#include <cstdint>

namespace engine {

// Written by the host before each step.
struct StepNumbers {
  std::uint64_t epoch = 0;  // KernelContext::epoch points here
  float loss_gradient =
      1;  // derivative of the step's objective by each row's loss, before loss scaling
  double max_norm = 0;  // gradients are scaled down to this Euclidean norm; 0: no clipping
  double lr = 0;        // f64 as on the CPU, so that both round alike
};

// How gradients are kept inside binary16's range: losses are multiplied by a scale, updates divided
// by it.
struct LossScaleRule {
  enum class Kind : std::uint8_t { kOff, kFixed, kDynamic };
  Kind kind = Kind::kOff;
  float initial = 1;  // kFixed: the scale; kDynamic: the first one, a power of two, so that scaling
                      // rounds nothing
  // kDynamic (Micikevicius et al., 2018; the numbers are PyTorch's GradScaler's): `backoff` times
  // the scale after a step with gradients that are not finite, `growth` times after `interval`
  // steps in a row without; always within the limits.
  float growth = 2, backoff = 0.5f, lowest = 1, highest = 16777216;
  std::int32_t interval = 2000;

  bool on() const { return kind != Kind::kOff; }
  bool operator==(const LossScaleRule&) const = default;
};

// Written by kernels, in device memory; the same on every replica whose gradients are.
struct StepControl {
  // Go from step to step, and belong in a checkpoint (engine/optim/loss_scale.h).
  float loss_scale = 1;
  std::int32_t good_steps = 0;  // since the scale changed last
  std::int64_t applied_steps = 0, skipped_steps = 0;
  std::int32_t skipped_in_a_row = 0;
  // Of the step under way.
  std::int32_t skip =
      0;  // 1: gradients are not finite, nothing may be updated; ranks agree on the greatest
  float gradient_scale =
      1;  // what the optimizer multiplies gradients by: clipping, and the loss scale taken out
  double squared_norm = 0;  // of the gradients as they lie there, scaled losses'; 0 where neither
                            // clipping nor scaling asks
};

}  // namespace engine
