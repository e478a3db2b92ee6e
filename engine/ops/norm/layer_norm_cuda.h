// Layer normalization on a CUDA device; operands as in layer_norm.h, checked there. Bound: bytes.
#pragma once

#include "engine/ops/norm/layer_norm.h"

namespace engine::ops::cuda {

std::size_t layer_norm_scratch_bytes(std::int64_t width);

void layer_norm_forward(KernelContext& context, const LayerNormForward& o);
void layer_norm_backward_data(KernelContext& context, const LayerNormBackwardData& o);
void layer_norm_backward_parameters(KernelContext& context, const LayerNormBackwardParameters& o);

// Both at once.
void layer_norm_backward(KernelContext& context, const LayerNormBackward& o);

}  // namespace engine::ops::cuda
