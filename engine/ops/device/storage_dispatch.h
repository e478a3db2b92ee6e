// Turns the dtype of activations into a template argument: f(float{}), f(bf16{}) or f(f16{}).
#pragma once

#include "engine/core/dtype.h"
#include "engine/core/error.h"

namespace engine::ops::cuda {

template <class Call>
void with_storage(DType dtype, Call call) {
  if (dtype == DType::kF32) return call(float{});
  if (dtype == DType::kBF16) return call(bf16{});
  require(dtype == DType::kF16, "activations on a CUDA device are f32, bf16 or f16");
  call(f16{});
}

}  // namespace engine::ops::cuda
