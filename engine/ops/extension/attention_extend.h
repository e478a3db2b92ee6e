// Causal self-attention of the next positions of texts, whose earlier keys and values are kept from
// call to call. Without dropout.
//
//   y_i = sum over j <= e + i of p_ij v_j,  p_i = softmax over j <= e + i of (q_i . k_j /
//   sqrt(size)),  e = earlier[s]
// qkv [n, t, (heads + 2 kv_heads) * size] as in attention.h; y [n, t, heads * size]; kept
// [n, 2 kv_heads, capacity, size]: the keys of each head, then the values of each. On a CUDA device
// the head size is at most 256, and products are f32, or f64; those of texts that begin are as in
// attention.h. On the CPU the rows of y have the same bits for any n, t and number of threads.
#pragma once

#include "engine/ops/extension/attention_extend_operands.h"

namespace engine::ops {

// Writes the keys and values of the call's positions to rows earlier[s] and up of `kept`; reads
// those before. `earlier` is in host memory on every device: a captured call would repeat its
// positions. Throws ShapeError if they are more than the capacity.
void causal_attention_extend(KernelContext& context, const CausalAttentionExtend& o);

}  // namespace engine::ops
