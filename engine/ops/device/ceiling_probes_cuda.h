// Measures the peak rates of a CUDA device, with which `engine bench kernels` compares kernels:
// multiply-adds and copies.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

struct MultiplyAddProbe {
  double operations = 0;
  const char* instruction = "";  // "wgmma m64n128k16 bf16"
};

// Runs `steps` rounds of independent multiply-adds without global memory in `blocks` blocks. They
// use float32 for Products::kF32, otherwise tensor cores with the fastest instruction that a kernel
// of this program has for these operands on this device. That is wgmma for bf16 and f16 on compute
// capability 9.0 if the program contains code for it, otherwise mma.sync. sink [>= 1] is f32.
MultiplyAddProbe probe_multiply_adds(KernelContext& context, int steps, int blocks,
                                     TensorView sink);

// to = from, 16 bytes per thread at a time. Both are dense and have the same size, a multiple of 16
// bytes.
void probe_copy(KernelContext& context, TensorView from, TensorView to);

}  // namespace engine::ops::cuda
