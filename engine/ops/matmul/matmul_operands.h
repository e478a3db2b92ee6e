// The operands of batched matrix products. matmul.h describes them.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

struct MatmulSizes {
  std::int64_t products;  // the product of the leading dimensions
  std::int64_t m, n, k;
};

struct MatmulForward {
  TensorView a, b;
  bool transpose_b = false;
  double scale = 1;
  TensorView y;
};

struct MatmulBackward {
  TensorView a, b, dy;
  bool transpose_b = false;
  double scale = 1;
  TensorView da{}, db{};  // absent if not needed
  Write da_write = Write::kOverwrite, db_write = Write::kOverwrite;
};

}  // namespace engine::ops
