// What a CUDA device can do at most, for `engine bench kernels` to hold kernels against:
// multiply-adds, and copying.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

struct MultiplyAddProbe {
  double operations = 0;
  const char* instruction = "";  // "wgmma m64n128k16 bf16"
};

// `steps` rounds of independent multiply-adds without global memory, by `blocks` blocks: float32
// for Products::kF32, else on tensor cores by the fastest instruction that a kernel of this program
// has for these operands on this device: wgmma for bf16 and f16 on compute capability 9.0, where
// the program has code for it, else mma.sync. sink [>= 1] of f32.
MultiplyAddProbe probe_multiply_adds(KernelContext& context, int steps, int blocks,
                                     TensorView sink);

// to = from, 16 bytes a thread at a time: both dense, of one size, a multiple of 16 bytes.
void probe_copy(KernelContext& context, TensorView from, TensorView to);

}  // namespace engine::ops::cuda
