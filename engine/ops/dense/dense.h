// Fully connected layer: y = x W^T + b.
// x [n, in], weight [out, in], bias [out] or absent, y [n, out]. With `relu`, y = max(0, .).
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Returns the scratch size of each call below with up to `n` rows. On the CPU, `products` is that
// of the context.
std::size_t dense_scratch_bytes(std::int64_t n, std::int64_t in, std::int64_t out, DType dtype,
                                int threads, Device::Kind device = Device::Kind::kCpu,
                                Products products = Products::kF32);

struct DenseForward {
  TensorView x, weight;
  TensorView bias{};
  bool relu = false;
  TensorView y;
  const float* packed_weight =
      nullptr;                      // on the CPU: what pack_dense_weight() has made of `weight`
  Write write = Write::kOverwrite;  // kAdd: without bias and ReLU
};
void dense_forward(KernelContext& context, const DenseForward& o);

// For many calls with few rows and the same weight, on the CPU: otherwise each call packs it anew.
// The bits stay the same. The size is 0 where calls would not use it.
std::size_t dense_packed_bytes(std::int64_t in, std::int64_t out, DType dtype, Device::Kind device,
                               Products products);
// `to`: 64-byte aligned, of dense_packed_bytes(). `dtype`: of x.
void pack_dense_weight(KernelContext& context, const TensorView& weight, DType dtype, float* to);

// dx = dy W
struct DenseBackwardData {
  TensorView dy, weight, dx;
  Write write = Write::kOverwrite;
};
void dense_backward_data(KernelContext& context, const DenseBackwardData& o);

// dweight = dy^T x; dbias = column sums of dy (absent if there is no bias)
struct DenseBackwardWeights {
  TensorView x, dy, dweight;
  TensorView dbias{};
  Write write = Write::kOverwrite;
};
void dense_backward_weights(KernelContext& context, const DenseBackwardWeights& o);

}  // namespace engine::ops
