// Pooling on a CUDA device; operands as in pool2d.h, checked there, for a batch of n. Bound: bytes.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"
#include "engine/ops/pool/pool2d.h"

namespace engine::ops::cuda {

// `argmax` may be absent in forward.
void max_pool2d_forward(KernelContext& context, const Pool2dGeometry& geometry, std::int64_t n,
                        TensorView x, TensorView y, TensorView argmax);
void max_pool2d_backward(KernelContext& context, const Pool2dGeometry& geometry, std::int64_t n,
                         TensorView dy, TensorView argmax, TensorView dx, Write write);
void average_pool2d_forward(KernelContext& context, const Pool2dGeometry& geometry, std::int64_t n,
                            TensorView x, TensorView y);
void average_pool2d_backward(KernelContext& context, const Pool2dGeometry& geometry, std::int64_t n,
                             TensorView dy, TensorView dx, Write write);
void global_average_pool_forward(KernelContext& context, std::int64_t n, std::int64_t pixels,
                                 std::int64_t channels, TensorView x, TensorView y);
void global_average_pool_backward(KernelContext& context, std::int64_t n, std::int64_t pixels,
                                  std::int64_t channels, TensorView dy, TensorView dx, Write write);

}  // namespace engine::ops::cuda
