// Codes of bf16 on a CUDA device. bf16_codes.h describes and bf16_codes.cc checks the operands.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

void encode_bf16(KernelContext& context, TensorView values, TensorView error, TensorView codes);
void decode_bf16(KernelContext& context, TensorView codes, TensorView values);

}  // namespace engine::ops::cuda
