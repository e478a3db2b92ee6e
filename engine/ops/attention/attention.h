// Self-attention of several heads in one kernel, causal or not. Memory grows with t, not with t
// squared: the matrix of probabilities exists only in small blocks. Forward stores the log-sum-exp
// of each row, from which backward recomputes the probabilities. Sources: Vaswani et al., 2017; the
// online softmax: Rabe and Staats, arXiv 2112.05682, 2021; Dao et al., FlashAttention, 2022.
//
//   y_i = sum over j of p_ij v_j,  p_i = softmax over j of (q_i . k_j / sqrt(size))
// with j <= i if it is causal, else over all positions.
// qkv, dqkv [n, t, (heads + 2 kv_heads) * size]: queries, keys and values side by side. A head h of
// queries reads head h / (heads / kv_heads) of keys and values (grouped queries: Ainslie et al.,
// GQA, 2023). y, dy [n, t, heads * size]; lse [n, heads, t], f32 (or f64) on a CUDA device, where
// the head size is at most 256.
// The results equal those of PyTorch's scaled_dot_product_attention(is_causal=causal).
#pragma once

#include <cstdint>
#include <span>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Inverted dropout of the probabilities. p_ij of sample s and head h is kept if the Philox word j %
// 4 of (key, high = epoch, low = ((s * heads + h) * t + i) * ceil(t / 4) + j / 4) is at least rate:
// this does not depend on the batch, the rank or the threads.
struct AttentionDropout {
  double rate = 0;  // 0: no dropout, and the other members are ignored
  std::uint64_t key = 0, epoch = 0;
  std::span<const std::int64_t> sample_ids{};  // [n]; in the memory of the context's device
};

// Scratch for the calls below.
struct AttentionScratch {
  std::int64_t n, t, width, heads;  // at most n samples; width is that of y
  DType dtype;
  int threads;
  Device::Kind device = Device::Kind::kCpu;
  Products products = Products::kF32;  // on the CPU, those of the context
};
std::size_t attention_scratch_bytes(const AttentionScratch& of);

struct AttentionForward {
  TensorView qkv;
  std::int64_t heads, kv_heads = heads;  // kv_heads divides heads
  bool causal = true;
  AttentionDropout dropout{};
  TensorView y;
  TensorView lse{};  // absent in inference
};
void attention_forward(KernelContext& context, const AttentionForward& o);

struct AttentionBackward {
  TensorView qkv;
  std::int64_t heads, kv_heads = heads;
  bool causal = true;
  AttentionDropout dropout{};  // must equal the dropout of forward, as must y and lse
  TensorView y, lse, dy, dqkv;
  Write write = Write::kOverwrite;
};
void attention_backward(KernelContext& context, const AttentionBackward& o);

}  // namespace engine::ops
