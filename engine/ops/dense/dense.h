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
  Write write = Write::kOverwrite;  // kAdd: without bias and ReLU
};
void dense_forward(KernelContext& context, const DenseForward& o);

// For many calls with few rows and the same weight, in f32 on the CPU: dense_forward() packs the
// weight in each call. In f32 the bits of results are those of dense_forward(), in bf16 those with
// a weight rounded to bf16.
struct PackedWeight {
  void* data;   // 64-byte aligned, of dense_packed_bytes()
  DType dtype;  // kF32 or kBF16
  std::int64_t in, out;
};
std::size_t dense_packed_bytes(std::int64_t in, std::int64_t out, DType packed);
void pack_dense_weight(KernelContext& context, const TensorView& weight, const PackedWeight& to);
// y = x W^T + b, or max(0, .). `bias` may be absent.
void packed_dense_forward(KernelContext& context, const TensorView& x, const PackedWeight& weight,
                          const TensorView& bias, bool relu, const TensorView& y);

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
