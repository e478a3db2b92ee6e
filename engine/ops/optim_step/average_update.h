// An average of values over time, for one element: torch.lerp(average, value, weight), as in
// torch.optim.swa_utils.
#pragma once

#include "engine/ops/optim_step/update_math.h"

namespace engine::ops {

// average += weight * (gradient - average), from the nearer end; if `first`, average = gradient.
// The value to average is passed as the gradient, and the average as the value.
struct AverageStep {
  double weight = 0;   // from 0 to 1
  bool first = false;  // there is no average yet

  static constexpr const char* kName = "average_step";
  static constexpr int kStates = 0;

  BASE_HOST_DEVICE void set(const UpdateTime& time) { first = time.count == 1; }

  template <class T>
  struct Numbers {
    T weight, rest;
    bool first;
  };
  template <class T>
  BASE_HOST_DEVICE Numbers<T> numbers() const {
    return {static_cast<T>(weight), static_cast<T>(1 - weight), first};
  }

  template <class M>
  BASE_HOST_DEVICE static void update(const Numbers<typename M::Scalar>& k,
                                      typename M::Value gradient, typename M::Value*,
                                      typename M::Value& value) {
    using Scalar = typename M::Scalar;
    if (k.first)
      value = gradient;
    else if (k.weight < Scalar(0.5))
      value = value + k.weight * (gradient - value);
    else
      value = gradient - (gradient - value) * k.rest;
  }
};

}  // namespace engine::ops
