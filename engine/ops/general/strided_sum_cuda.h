// Strided sums on a CUDA device. strided_sum.h describes and strided_sum.cc checks the operands.
#pragma once

#include "engine/ops/general/general_operands.h"

namespace engine::ops::cuda {

void strided_sum(KernelContext& context, const StridedSum& o);

}  // namespace engine::ops::cuda
