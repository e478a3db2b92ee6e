// Products of matrices in batches: y = scale * A B for each pair of the leading dimensions.
//   a [..., m, k], b [..., k, n] or, with transpose_b, [..., n, k], y [..., m, n]
// The leading dimensions of all operands are equal. Activations on both sides: a dense layer, whose
// weight all rows share, is a single product (dense.h).
#pragma once

#include "engine/ops/matmul/matmul_operands.h"

namespace engine::ops {

// Returns the scratch size of each call below, for any number of products. On the CPU, `products`
// is that of the context.
std::size_t matmul_scratch_bytes(const MatmulSizes& sizes, DType dtype, int threads,
                                 Device::Kind device = Device::Kind::kCpu,
                                 Products products = Products::kF32);

void matmul_forward(KernelContext& context, const MatmulForward& o);

// da = scale * dy B^T, db = scale * A^T dy (transposed with transpose_b). da is written before db:
// they may be one tensor if a and b are. With a scale other than 1, dy may be overwritten.
void matmul_backward(KernelContext& context, const MatmulBackward& o);

}  // namespace engine::ops
