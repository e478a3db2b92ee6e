// Two-dimensional convolution whose channels are divided into groups, each of which is a
// convolution of its own; with as many groups as channels, it is depthwise. As in PyTorch: a
// cross-correlation with zero padding, without dilation. Output channel o belongs to group
// o / (out / groups). x [n, h, w, in], weight [k, k, in / groups, out], bias [out] or absent,
// y [n, oh, ow, out], oh = (h + 2 padding - k) / stride + 1. CPUs only: on a CUDA device, the three
// functions throw ModelError. No result depends on the number of threads.
#pragma once

#include "engine/ops/grouped_conv2d/grouped_conv2d_operands.h"

namespace engine::ops {

// Returns the scratch that suffices for each of the three functions.
std::size_t grouped_conv2d_scratch_bytes(const GroupedConv2dGeometry& geometry, std::int64_t n,
                                         DType dtype);

void grouped_conv2d_forward(KernelContext& context, const GroupedConv2dForward& o);

void grouped_conv2d_backward_data(KernelContext& context, const GroupedConv2dBackwardData& o);

void grouped_conv2d_backward_weights(KernelContext& context, const GroupedConv2dBackwardWeights& o);

}  // namespace engine::ops
