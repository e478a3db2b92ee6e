// Maxima on a CUDA device. reduce_max.h describes and reduce_max.cc checks the operands.
#pragma once

#include "engine/ops/general/general_operands.h"

namespace engine::ops::cuda {

void reduce_max_forward(KernelContext& context, const ReduceMaxForward& o);
// Adds dy to the places of the maxima.
void add_to_maxima(KernelContext& context, const ReduceMaxBackward& o);

}  // namespace engine::ops::cuda
