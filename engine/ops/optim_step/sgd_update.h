// PyTorch's SGD, for one element. update_list.h describes the members of such a struct.
#pragma once

#include "engine/ops/optim_step/update_math.h"

namespace engine::ops {

// g += weight_decay * w; v = first ? g : momentum * v + g; g = nesterov ? g + momentum * v : v;
// w -= lr * g. `gradient_scale` multiplies g first. `first`: there is no velocity yet.
struct SgdStep {
  double lr = 0, momentum = 0, weight_decay = 0, gradient_scale = 1;
  bool nesterov = false, first = false;
};

// kVelocity: with momentum; its velocity is the only state.
template <bool kVelocity>
struct SgdUpdate : SgdStep {
  static constexpr const char* kName = "sgd_step";
  static constexpr int kStates = kVelocity ? 1 : 0;

  BASE_HOST_DEVICE void set(const UpdateTime& time) {
    lr = time.lr;
    gradient_scale = time.gradient_scale;
    first = time.count == 1;
  }

  template <class T>
  struct Numbers {
    T lr, momentum, weight_decay, gradient_scale;
    bool nesterov, first;
  };
  template <class T>
  BASE_HOST_DEVICE Numbers<T> numbers() const {
    return {static_cast<T>(lr),
            static_cast<T>(momentum),
            static_cast<T>(weight_decay),
            static_cast<T>(gradient_scale),
            nesterov,
            first};
  }

  template <class M>
  BASE_HOST_DEVICE static void update(const Numbers<typename M::Scalar>& k,
                                      typename M::Value gradient,
                                      [[maybe_unused]] typename M::Value* state,
                                      typename M::Value& value) {
    typename M::Value g = gradient * k.gradient_scale;
    if (k.weight_decay != 0) g = g + k.weight_decay * value;
    if constexpr (kVelocity) {
      typename M::Value v = g;
      if (!k.first) v = k.momentum * state[0] + g;
      state[0] = v;
      if (k.nesterov)
        g = g + k.momentum * v;
      else
        g = v;
    }
    value = value - k.lr * g;
  }
};

}  // namespace engine::ops
