// Strided copies on a CUDA device. strided_copy.h describes and strided_copy.cc checks the
// operands; the axes are in the order of y's memory. Bound by bytes.
#pragma once

#include "engine/ops/general/general_operands.h"

namespace engine::ops::cuda {

void strided_copy(KernelContext& context, const StridedCopy& o);

}  // namespace engine::ops::cuda
