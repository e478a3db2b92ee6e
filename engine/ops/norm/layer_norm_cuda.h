// Layer normalization on a CUDA device. layer_norm.h describes and layer_norm.cc checks the
// operands. Bound by bytes.
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
