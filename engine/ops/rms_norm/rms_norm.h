// Normalization by the root mean square of each row (Zhang and Sennrich, 2019); the results equal
// those of PyTorch's RMSNorm.
//
//   y = x * inverse_rms * gamma,  inverse_rms = 1 / sqrt(mean of x^2 + eps) of each row
// x, y, dy, dx [rows..., width]; gamma, dgamma [width]; inverse_rms [rows]. On a CUDA device gamma,
// its gradient and inverse_rms are f32.
#pragma once

#include "engine/ops/rms_norm/rms_norm_operands.h"

namespace engine::ops {

// Returns the scratch size of backward.
std::size_t rms_norm_scratch_bytes(std::int64_t width, Device::Kind device);

void rms_norm_forward(KernelContext& context, const RmsNormForward& o);
void rms_norm_backward(KernelContext& context, const RmsNormBackward& o);

}  // namespace engine::ops
