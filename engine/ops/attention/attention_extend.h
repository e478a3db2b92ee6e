// Causal self-attention of the next positions of texts, whose earlier keys and values are kept from
// call to call. In host memory only, without dropout.
//
//   y_i = sum over j <= e + i of p_ij v_j,  p_i = softmax over j <= e + i of (q_i . k_j /
//   sqrt(size)),  e = earlier[s]
// qkv [n, t, (heads + 2 kv_heads) * size] as in attention.h; y [n, t, heads * size]; kept
// [n, 2 kv_heads, capacity, size]: the keys of each head, then the values of each. The rows of y
// have the same bits for any n, t and number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Writes the keys and values of the call's positions to rows earlier[s] and up of `kept`; reads
// those before. Throws ShapeError if they are more than the capacity.
struct CausalAttentionExtend {
  TensorView qkv;
  std::int64_t heads, kv_heads = heads;   // kv_heads divides heads
  std::span<const std::int64_t> earlier;  // [n]
  TensorView kept;
  TensorView y;
};
void causal_attention_extend(KernelContext& context, const CausalAttentionExtend& o);

}  // namespace engine::ops
