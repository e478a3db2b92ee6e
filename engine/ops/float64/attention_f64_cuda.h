// Self-attention in float64 on a CUDA device; attention.h describes the tensors. Head sizes are at
// most 128.
#pragma once

#include <cstdint>

#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

// Every head of queries of every sample is one problem with number sample * heads + head; those of
// a group, `group` adjacent ones, read the same keys and values. Rows of q, k and v are `stride`
// apart, those of y `width`.
struct AttentionF64 {
  std::int64_t n, t, heads, group, size, stride, width;
  bool causal;
  const double* qkv;
  double *y, *lse;   // lse [n, heads, t] may be null in forward
  const double* dy;  // this and the members below: backward only
  double* dqkv;
  double* weights;  // [n, heads, t]: sum over the keys of a probability times its gradient
  bool add;

  // A probability is kept if its word's upper 24 bits reach `threshold`, times `factor`.
  struct Dropout {
    const std::int64_t* sample_ids;  // null: no dropout
    std::uint64_t key, fixed_epoch;
    const std::uint64_t* epoch;  // null: fixed_epoch
    std::uint32_t threshold;
    double factor;
  } dropout;
};

void attention_forward_f64(KernelContext& context, const AttentionF64& o);
void attention_backward_f64(KernelContext& context, const AttentionF64& o);

}  // namespace engine::ops::cuda
