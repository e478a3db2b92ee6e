// Products of matrices in batches: y = scale * A B for each pair of the leading dimensions.
//   a [batch..., m, k], b [batch..., k, n] or, with transpose_b, [batch..., n, k], y [batch..., m,
//   n]
// The leading dimensions of all operands are equal. Activations on both sides: a dense layer, whose
// weight all rows share, is a single product (dense.h).
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

struct MatmulSizes {
  std::int64_t products;  // the product of the leading dimensions
  std::int64_t m, n, k;
};

// Returns the scratch size of each call below, for any number of products. On the CPU, `products`
// is that of the context.
std::size_t matmul_scratch_bytes(const MatmulSizes& sizes, DType dtype, int threads,
                                 Device::Kind device = Device::Kind::kCpu,
                                 Products products = Products::kF32);

struct MatmulForward {
  TensorView a, b;
  bool transpose_b = false;
  double scale = 1;
  TensorView y;
};
void matmul_forward(KernelContext& context, const MatmulForward& o);

// da = scale * dy B^T, db = scale * A^T dy (transposed with transpose_b). da is written before db:
// they may be one tensor if a and b are. With a scale other than 1, dy may be overwritten.
struct MatmulBackward {
  TensorView a, b, dy;
  bool transpose_b = false;
  double scale = 1;
  TensorView da{}, db{};  // absent if not needed
  Write da_write = Write::kOverwrite, db_write = Write::kOverwrite;
};
void matmul_backward(KernelContext& context, const MatmulBackward& o);

}  // namespace engine::ops
