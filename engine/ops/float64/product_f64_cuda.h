// Matrix products in float64 on a CUDA device, by the plain kernel of plain_product.h.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

// A or B of each product: lines (of A rows, of B columns) that are contiguous along k or, without
// `by_depth`, k that is contiguous along the lines. The matrices follow each other in memory.
struct OperandF64 {
  const TensorView& view;
  bool by_depth;
};

// c [matrices, m, n] = (or +=) scale * A B + bias, with `relu` max(0, .). bias [n] may be absent.
struct ProductF64 {
  const char* name;  // for error texts
  std::int64_t m, n, k, matrices = 1;
  OperandF64 a, b;
  const TensorView& c;
  Write write = Write::kOverwrite;
  double scale = 1;
  TensorView bias{};
  bool relu = false;
};
void multiply_f64(KernelContext& context, const ProductF64& o);

}  // namespace engine::ops::cuda
