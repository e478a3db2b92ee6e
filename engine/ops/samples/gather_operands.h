// The operands of gathering samples; gather_samples.h describes them.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"

namespace engine::ops {

struct GatherRows {
  TensorView rows;
  const std::int64_t* ids;  // [n]
  TensorView out;
};

struct GatherWindows {
  TensorView stream;
  std::int64_t stride;
  const std::int64_t* ids;  // [n]
  TensorView tokens, next;
};

}  // namespace engine::ops
