// AdamW (Loshchilov and Hutter, 2019) as in PyTorch, for one element.
#pragma once

#include "engine/ops/optim_step/update_math.h"

namespace engine::ops {

// w -= lr * weight_decay * w; m, v updated; w -= lr / bias1 * m / (sqrt(v) / sqrt(bias2) + eps),
// bias_k = 1 - beta_k^t, t = `count` >= 1. The states are m and v.
struct AdamwStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01, gradient_scale = 1;
  std::int64_t count = 1;

  static constexpr const char* kName = "adamw_step";
  static constexpr int kStates = 2;

  BASE_HOST_DEVICE void set(const UpdateTime& time) {
    lr = time.lr;
    gradient_scale = time.gradient_scale;
    count = time.count;
  }

  template <class T>
  struct Numbers {
    T keep, rest1, beta2, rest2, step_size, root_bias2, eps, gradient_scale;
  };
  template <class T>
  BASE_HOST_DEVICE Numbers<T> numbers() const {
    using std::pow, std::sqrt;
    const double bias1 = 1 - pow(beta1, static_cast<double>(count));
    const double bias2 = 1 - pow(beta2, static_cast<double>(count));
    return {static_cast<T>(1 - lr * weight_decay),
            static_cast<T>(1 - beta1),
            static_cast<T>(beta2),
            static_cast<T>(1 - beta2),
            static_cast<T>(lr / bias1),
            static_cast<T>(sqrt(bias2)),
            static_cast<T>(eps),
            static_cast<T>(gradient_scale)};
  }

  template <class M>
  BASE_HOST_DEVICE static void update(const Numbers<typename M::Scalar>& k,
                                      typename M::Value gradient, typename M::Value* state,
                                      typename M::Value& value) {
    using Scalar = typename M::Scalar;
    const typename M::Value g = gradient * k.gradient_scale, away = g - state[0];
    // PyTorch's lerp: computed from the nearer end.
    if (k.rest1 < Scalar(0.5))
      state[0] = state[0] + k.rest1 * away;
    else
      state[0] = g - away * (1 - k.rest1);
    state[1] = state[1] * k.beta2 + k.rest2 * g * g;
    const typename M::Value denominator = M::root(state[1]) / k.root_bias2 + k.eps;
    value = value * k.keep - k.step_size * state[0] / denominator;
  }
};

}  // namespace engine::ops
