// Gathering of samples on a CUDA device. gather_samples.h describes and gather_samples.cc checks
// the operands. Bound by bytes.
#pragma once

#include "engine/ops/common/kernel_context.h"
#include "engine/ops/samples/gather_operands.h"

namespace engine::ops::cuda {

void gather_rows(KernelContext& context, const GatherRows& o);
void gather_windows(KernelContext& context, const GatherWindows& o);

}  // namespace engine::ops::cuda
