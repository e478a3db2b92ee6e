// The values that change from step to step of training on a CUDA device: plain numbers in device
// memory, so that a step captured as a graph can be launched repeatedly.
#pragma once

#include <cstdint>

namespace engine {

// The host writes these before each step.
struct StepNumbers {
  std::uint64_t epoch = 0;  // KernelContext::epoch points here
  float loss_gradient =
      1;  // derivative of the step's objective with respect to each row's loss, before loss scaling
  double max_norm = 0;  // gradients are scaled down to this Euclidean norm; 0: no clipping
  double lr = 0;        // f64 as on the CPU, so that both round alike
  // Models in f64 only, whose losses are not scaled: loss_gradient before rounding, and a factor of
  // the gradients besides clipping.
  double wide_loss_gradient = 1, wide_gradient_scale = 1;
  std::int64_t round = 0;  // of the exchange of gradients: the random numbers of codes depend on it
};

// The rule that keeps gradients inside binary16's range: losses are multiplied by a scale, updates
// are divided by it.
struct LossScaleRule {
  enum class Kind : std::uint8_t { kOff, kFixed, kDynamic };
  Kind kind = Kind::kOff;
  float initial = 1;  // kFixed: the scale; kDynamic: the first scale, a power of two, so that
                      // scaling does not round
  // kDynamic (Micikevicius et al., 2018; the numbers are PyTorch's GradScaler's): the scale is
  // multiplied by `backoff` after a step with non-finite gradients, and by `growth` after
  // `interval` consecutive steps without; always within the limits.
  float growth = 2, backoff = 0.5f, lowest = 1, highest = 16777216;
  std::int32_t interval = 2000;

  bool on() const { return kind != Kind::kOff; }
  bool operator==(const LossScaleRule&) const = default;
};

// Kernels write these in device memory; they are the same on every replica with the same gradients.
struct StepControl {
  // These carry over from step to step, and belong in a checkpoint (engine/optim/loss_scale.h).
  float loss_scale = 1;
  std::int32_t good_steps = 0;  // since the last change of the scale
  std::int64_t applied_steps = 0, skipped_steps = 0;
  std::int32_t skipped_in_a_row = 0;
  // These belong to the current step.
  std::int32_t skip =
      0;  // 1: gradients are not finite, and nothing may be updated; ranks take the maximum
  float gradient_scale =
      1;  // the optimizer's factor of gradients: clipping, and division by the loss scale
  float step_scale = 1;     // the loss scale of the step, which loss_scale may no longer be
  double squared_norm = 0;  // for the scaled gradients; 0 if neither clipping nor scaling needs it
};

}  // namespace engine
