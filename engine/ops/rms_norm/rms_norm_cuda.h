// RMS normalization on a CUDA device. rms_norm.h describes and rms_norm.cc checks the operands.
#pragma once

#include "engine/ops/rms_norm/rms_norm_operands.h"

namespace engine::ops::cuda {

std::size_t rms_norm_scratch_bytes(std::int64_t width);

void rms_norm_forward(KernelContext& context, const RmsNormForward& o, const RmsNormSizes& s);
void rms_norm_backward(KernelContext& context, const RmsNormBackward& o, const RmsNormSizes& s);

}  // namespace engine::ops::cuda
