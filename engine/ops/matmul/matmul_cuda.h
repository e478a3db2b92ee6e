// Batched matrix products on a CUDA device. matmul.h describes and matmul.cc checks the operands.
#pragma once

#include "engine/ops/matmul/matmul_operands.h"

namespace engine::ops::cuda {

void matmul_forward(KernelContext& context, const MatmulSizes& s, const MatmulForward& o);
void matmul_backward(KernelContext& context, const MatmulSizes& s, const MatmulBackward& o);

}  // namespace engine::ops::cuda
