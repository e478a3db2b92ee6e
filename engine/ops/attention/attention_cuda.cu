// Selects the attention kernels, and computes the sums of dy * y over each row of a head, which
// backward needs first: one warp per row. Method and sources: attention_simt_cuda.cu,
// attention_mma_forward_cuda.cu.
#include "engine/ops/attention/attention_cuda.h"

#include <cmath>

#include "engine/ops/attention/attention_operands.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

// One warp computes row i of a head, in the order of y's memory.
template <class T>
__global__ void __launch_bounds__(kThreads) sum_weights(AttentionOperands<T> o) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + warp_index();  // (sample, i, head)
  if (row >= o.n * o.t * o.heads) return;
  float sum = 0;
  for (int c = lane_index(); c < o.size; c += kWarp)
    sum += to_float(o.y[row * o.size + c]) * to_float(o.dy[row * o.size + c]);
  sum = warp_sum(sum);
  const std::int64_t head = row % o.heads, i = row / o.heads % o.t, sample = row / o.heads / o.t;
  if (lane_index() == 0) o.weights[(sample * o.heads + head) * o.t + i] = sum;
}

// Returns the operands that forward and backward share.
template <class T, class Operands>
AttentionOperands<T> operands_of(const KernelContext& context, const Operands& from) {
  AttentionOperands<T> o{};
  o.n = from.qkv.shape[0];
  o.t = from.qkv.shape[1];
  o.heads = static_cast<int>(from.heads);
  o.group = static_cast<int>(from.heads / from.kv_heads);
  o.size = static_cast<int>(from.y.shape[2] / from.heads);
  o.stride = from.qkv.shape[2];
  o.scale = static_cast<Wide<T>>(1 / std::sqrt(static_cast<double>(o.size)));
  o.qkv = from.qkv.template as<T>();
  o.y = from.y.template as<T>();
  o.lse = from.lse.template as<Wide<T>>();
  const AttentionDropout& dropout = from.dropout;
  if (dropout.rate == 0) return o;
  o.sample_ids = dropout.sample_ids.data();
  o.key = dropout.key;
  o.fixed_epoch = dropout.epoch;
  o.epoch = context.epoch;
  o.threshold = static_cast<std::uint32_t>(std::ceil(dropout.rate * 0x1p24));
  o.factor = static_cast<Wide<T>>(1 / (1 - dropout.rate));
  return o;
}

template <class T>
bool needs_plain_kernels(const AttentionOperands<T>& o) {
  return std::is_same_v<T, double> || o.size > kMaxTiledHeadSize;
}

template <class T>
bool use_tensor_cores(const AttentionOperands<T>& o, Products products) {
  if (sizeof(T) == 4 && products == Products::kF32) return false;
  if (o.size != 32 && o.size != 64 && o.size != 128) return false;
  const int row_bytes = o.size * (sizeof(T) == 4 && products == Products::kTf32 ? 4 : 2);
  if (mma_shared_bytes(row_bytes) > engine::cuda::max_shared_bytes()) return false;
  for (const void* address : {static_cast<const void*>(o.qkv), static_cast<const void*>(o.y),
                              static_cast<const void*>(o.dy), static_cast<const void*>(o.dqkv)})
    if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return false;
  return true;
}

}  // namespace

std::size_t attention_scratch_bytes(std::int64_t n, std::int64_t t, std::int64_t heads,
                                    DType dtype) {
  return static_cast<std::size_t>(n * t * heads) * size_of(wide_dtype(dtype));
}

void attention_forward(KernelContext& context, const AttentionForward& from) {
  if (from.qkv.count() == 0) return;
  with_any_storage(from.qkv.dtype, [&]<class T>(T) {
    const AttentionOperands<T> o = operands_of<T>(context, from);
    if (needs_plain_kernels(o)) return start_plain_forward(o, from.causal, context.stream);
    if constexpr (!std::is_same_v<T, double>)
      use_tensor_cores(o, context.products)
          ? start_mma_forward(o, from.causal, context.products, context.stream)
          : start_simt_forward(o, from.causal, context.stream);
  });
}

void attention_backward(KernelContext& context, const AttentionBackward& from) {
  if (from.qkv.count() == 0) return;
  with_any_storage(from.qkv.dtype, [&]<class T>(T) {
    AttentionOperands<T> o = operands_of<T>(context, from);
    o.dy = from.dy.as<T>();
    o.weights = reinterpret_cast<Wide<T>*>(context.scratch.data());
    o.dqkv = from.dqkv.as<T>();
    o.add = from.write == Write::kAdd;
    if (needs_plain_kernels(o)) return start_plain_backward(o, from.causal, context.stream);
    if constexpr (!std::is_same_v<T, double>) {
      launch("attention_weights", sum_weights<T>,
             {static_cast<unsigned>(divide_up(o.n * o.t * o.heads, kWarps))}, kThreads, 0,
             context.stream, o);
      use_tensor_cores(o, context.products)
          ? start_mma_backward(o, from.causal, context.products, context.stream)
          : start_simt_backward(o, from.causal, context.stream);
    }
  });
}

}  // namespace engine::ops::cuda
