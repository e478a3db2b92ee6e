// Turns the dtype of activations into a template argument: f(float{}), f(bf16{}), f(f16{}) or, with
// with_any_storage(), f(double{}).
#pragma once

#include "engine/core/dtype.h"
#include "engine/core/error.h"

namespace engine::ops::cuda {

template <class Call>
void with_storage(DType dtype, Call call) {
  if (dtype == DType::kF32) return call(float{});
  if (dtype == DType::kBF16) return call(bf16{});
  require(dtype == DType::kF16, "activations of this kernel are f32, bf16 or f16");
  call(f16{});
}

// For kernels that also compute in float64.
template <class Call>
void with_any_storage(DType dtype, Call call) {
  if (dtype == DType::kF64) return call(double{});
  with_storage(dtype, call);
}

}  // namespace engine::ops::cuda
