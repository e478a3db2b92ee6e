// Gradients as bf16 with error feedback on a CUDA device, with the bits of Bf16Sum on the CPU.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// code = values + error, rounded to bf16 (to nearest, ties to even); error = values + error - code,
// or 0 if that is not finite.
// Values and error are f32 or f64, `codes` are bf16; all in device memory, with equally many
// elements. Throws Error.
void encode_bf16(KernelContext& context, TensorView values, TensorView error, TensorView codes);
// values = codes.
void decode_bf16(KernelContext& context, TensorView codes, TensorView values);

}  // namespace engine::ops
