// What a CUDA device can do at most, for `engine bench kernels` to hold kernels against:
// multiply-adds, and copying.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

// `steps` rounds of independent multiply-adds without memory: float32 for Products::kF32, else on
// tensor cores by mma.sync (sm_90 has wgmma besides, which is faster). sink [>= 1] of f32. Returns
// the operations.
double probe_multiply_adds(KernelContext& context, int steps, TensorView sink);

// to = from, 16 bytes a thread at a time: both dense, of one size, a multiple of 16 bytes.
void probe_copy(KernelContext& context, TensorView from, TensorView to);

}  // namespace engine::ops::cuda
