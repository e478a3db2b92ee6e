// The elementwise parts of Muon (Jordan et al., 2024), before and after the orthogonalization
// (orthogonalize.h).
#pragma once

#include "engine/ops/optim_step/update_math.h"

namespace engine::ops {

// m = beta * m + (1 - beta) * g; direction = nesterov ? beta * m + (1 - beta) * g : m. The value is
// the direction, the state is m.
struct MuonMomentumStep {
  double beta = 0.95, gradient_scale = 1;
  bool nesterov = true;

  static constexpr const char* kName = "muon_momentum";
  static constexpr int kStates = 1;

  BASE_HOST_DEVICE void set(const UpdateTime& time) { gradient_scale = time.gradient_scale; }

  template <class T>
  struct Numbers {
    T beta, rest, gradient_scale;
    bool nesterov;
  };
  template <class T>
  BASE_HOST_DEVICE Numbers<T> numbers() const {
    return {static_cast<T>(beta), static_cast<T>(1 - beta), static_cast<T>(gradient_scale),
            nesterov};
  }

  template <class M>
  BASE_HOST_DEVICE static void update(const Numbers<typename M::Scalar>& k,
                                      typename M::Value gradient, typename M::Value* state,
                                      typename M::Value& direction) {
    const typename M::Value g = gradient * k.gradient_scale;
    state[0] = state[0] * k.beta + g * k.rest;
    direction = state[0];
    if (k.nesterov) direction = state[0] * k.beta + g * k.rest;
  }
};

// w -= lr * weight_decay * w; w -= lr * factor * u, where the gradient is the orthogonal u.
struct MuonApplyStep {
  double lr = 0, weight_decay = 0, factor = 1;

  static constexpr const char* kName = "muon_apply";
  static constexpr int kStates = 0;

  BASE_HOST_DEVICE void set(const UpdateTime& time) { lr = time.lr; }

  template <class T>
  struct Numbers {
    T keep, rate;
  };
  template <class T>
  BASE_HOST_DEVICE Numbers<T> numbers() const {
    return {static_cast<T>(1 - lr * weight_decay), static_cast<T>(lr * factor)};
  }

  template <class M>
  BASE_HOST_DEVICE static void update(const Numbers<typename M::Scalar>& k,
                                      typename M::Value gradient, typename M::Value*,
                                      typename M::Value& value) {
    value = value * k.keep - k.rate * gradient;
  }
};

}  // namespace engine::ops
