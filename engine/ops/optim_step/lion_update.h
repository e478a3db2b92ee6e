// Lion (Chen et al., 2023, algorithm 2), for one element.
#pragma once

#include "engine/ops/optim_step/update_math.h"

namespace engine::ops {

// c = beta1 * m + (1 - beta1) * g; w -= lr * weight_decay * w; w -= lr * sign(c);
// m = beta2 * m + (1 - beta2) * g. The state is m.
struct LionStep {
  double lr = 0, beta1 = 0.9, beta2 = 0.99, weight_decay = 0, gradient_scale = 1;

  static constexpr const char* kName = "lion_step";
  static constexpr int kStates = 1;

  BASE_HOST_DEVICE void set(const UpdateTime& time) {
    lr = time.lr;
    gradient_scale = time.gradient_scale;
  }

  template <class T>
  struct Numbers {
    T keep, lr, beta1, rest1, beta2, rest2, gradient_scale;
  };
  template <class T>
  BASE_HOST_DEVICE Numbers<T> numbers() const {
    return {static_cast<T>(1 - lr * weight_decay),
            static_cast<T>(lr),
            static_cast<T>(beta1),
            static_cast<T>(1 - beta1),
            static_cast<T>(beta2),
            static_cast<T>(1 - beta2),
            static_cast<T>(gradient_scale)};
  }

  template <class M>
  BASE_HOST_DEVICE static void update(const Numbers<typename M::Scalar>& k,
                                      typename M::Value gradient, typename M::Value* state,
                                      typename M::Value& value) {
    const typename M::Value g = gradient * k.gradient_scale;
    const typename M::Value direction = M::sign(state[0] * k.beta1 + g * k.rest1);
    value = value * k.keep - k.lr * direction;
    state[0] = state[0] * k.beta2 + g * k.rest2;
  }
};

}  // namespace engine::ops
