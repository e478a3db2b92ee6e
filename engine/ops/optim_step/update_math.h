// The operations of the optimizers' element functions (sgd_update.h and its siblings): the
// operators of C++, and the few functions here, which also exist for vectors of a CPU
// (optimizer_step_cpu.cc). One source is thus compiled for the CPU, for float64 and by nvcc.
//
// All of them are compiled without contraction to fused multiply-adds (engine/ops/CMakeLists.txt):
// every operation rounds separately, so that CPUs of every instruction set and CUDA devices get the
// same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "io/base/numbers/half.h"

namespace engine::ops {

// Identifies an update, the same for all elements. `gradient_scale` multiplies the gradients first
// (clipping, and on CUDA devices the division by the loss scale); `count` is the update's number,
// starting at 1.
struct UpdateTime {
  double lr = 0, gradient_scale = 1;
  std::int64_t count = 1;
};

// The factor of gradients that clips their norm: 1 if max_norm is 0, or if the norm is not above
// it.
BASE_HOST_DEVICE double clipped_by(double max_norm, double norm) {
  if (!(max_norm > 0)) return 1;
  const double factor = max_norm / (norm + 1e-6);
  return factor >= 1 ? 1 : factor;
}

// Operations on one number at a time.
template <class T>
struct PlainMath {
  using Scalar = T;
  using Value = T;
  BASE_HOST_DEVICE static T root(T x) {
    using std::sqrt;
    return sqrt(x);
  }
  // Returns -1, 0 or 1; a zero keeps its sign, and NaN stays NaN, so that it is not hidden.
  BASE_HOST_DEVICE static T sign(T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x; }
};

}  // namespace engine::ops
