// What one optimizer step means: plain loops in PyTorch's order of operations. Contract:
// optimizer_step.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/ops/optim_step/optimizer_step.h"

namespace engine::ops::reference {

// `velocity` may be nullptr when momentum is 0.
template <class T>
void sgd_step(const SgdStep& step, const T* gradient, T* velocity, std::int64_t count, T* value) {
  const T lr = static_cast<T>(step.lr), momentum = static_cast<T>(step.momentum),
          decay = static_cast<T>(step.weight_decay);
  const T gradient_scale = static_cast<T>(step.gradient_scale);
  for (std::int64_t i = 0; i < count; ++i) {
    T g = gradient[i] * gradient_scale;
    if (decay != 0) g += decay * value[i];
    if (velocity != nullptr) {
      const T v = step.first ? g : momentum * velocity[i] + g;
      velocity[i] = v;
      g = step.nesterov ? g + momentum * v : v;
    }
    value[i] -= lr * g;
  }
}

template <class T>
void adamw_step(const AdamwStep& step, const T* gradient, T* first_moment, T* second_moment,
                std::int64_t count, T* value) {
  const double bias1 = 1 - std::pow(step.beta1, static_cast<double>(step.count));
  const double bias2 = 1 - std::pow(step.beta2, static_cast<double>(step.count));
  const T keep = static_cast<T>(1 - step.lr * step.weight_decay),
          step_size = static_cast<T>(step.lr / bias1);
  const T root_bias2 = static_cast<T>(std::sqrt(bias2)), eps = static_cast<T>(step.eps),
          beta2 = static_cast<T>(step.beta2);
  const T rest1 = static_cast<T>(1 - step.beta1), rest2 = static_cast<T>(1 - step.beta2);
  const T gradient_scale = static_cast<T>(step.gradient_scale);
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * gradient_scale;
    // PyTorch's lerp: from the nearer end.
    const T difference = g - first_moment[i];
    const T m =
        rest1 < T(0.5) ? first_moment[i] + rest1 * difference : g - difference * (1 - rest1);
    const T v = second_moment[i] * beta2 + rest2 * g * g;
    first_moment[i] = m;
    second_moment[i] = v;
    value[i] = value[i] * keep - step_size * m / (std::sqrt(v) / root_bias2 + eps);
  }
}

// Squares of block after block of `kSumBlock`; each block has sixteen interleaved sums, added
// pairwise at its end. The order is thus the same for every vector width; products of two f32 are
// exact in f64, so that f32 gives the same bits everywhere.
inline constexpr std::int64_t kSumBlock = 4096;
inline constexpr int kSumLanes = 16;

template <class T>
double sum_of_squares_block(const T* values, std::int64_t count) {
  double lanes[kSumLanes] = {};
  std::int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    for (int lane = 0; lane < kSumLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (int lane = 0; i + lane < count; ++lane) {
    const double value = values[i + lane];
    lanes[lane] += value * value;
  }
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace engine::ops::reference
