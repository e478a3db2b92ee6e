// Self-attention on a CUDA device. attention.h describes and attention.cc checks the
// operands. Bound by flops for long contexts.
#pragma once

#include "engine/ops/attention/attention.h"

namespace engine::ops::cuda {

inline constexpr std::int64_t kMaxHeadSize = 256;

std::size_t attention_scratch_bytes(std::int64_t n, std::int64_t t, std::int64_t heads,
                                    DType dtype);

// `dropout.sample_ids` is in device memory; context.epoch, if present, replaces dropout.epoch.
void attention_forward(KernelContext& context, const AttentionForward& o);
void attention_backward(KernelContext& context, const AttentionBackward& o);

}  // namespace engine::ops::cuda
