// Attention of the next positions of texts on a CUDA device. attention_extend.h describes and
// attention_extend.cc checks the operands. Bound by bytes: the kept keys and values.
#pragma once

#include "engine/ops/extension/attention_extend_operands.h"

namespace engine::ops::cuda {

// Heads have at most kMaxHeadSize elements.
void causal_attention_extend(KernelContext& context, const CausalAttentionExtend& o);

}  // namespace engine::ops::cuda
