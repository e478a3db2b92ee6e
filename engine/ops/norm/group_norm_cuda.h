// Group normalization on a CUDA device. group_norm.h describes and group_norm.cc checks the
// operands.
#pragma once

#include "engine/ops/norm/group_norm.h"

namespace engine::ops::cuda {

std::size_t group_norm_scratch_bytes(std::int64_t channels);

void group_norm_forward(KernelContext& context, const GroupNormForward& o);
void group_norm_backward(KernelContext& context, const GroupNormBackward& o);

}  // namespace engine::ops::cuda
