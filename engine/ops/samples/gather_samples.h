// Gathers the samples of a batch from a data set in device memory, by their indices. For CUDA
// devices only; in host memory the loader does this. All operands are in device memory.
//
// Bound by bytes: each is read and written once.
#pragma once

#include "engine/ops/common/kernel_context.h"
#include "engine/ops/samples/gather_operands.h"

namespace engine::ops {

// out [n, ...] = rows [size, ...] at ids[n]; both u8 or f32, with samples of equally many elements.
// REQUIRES: 0 <= ids[n] < size. Throws Error on the CPU.
void gather_rows(KernelContext& context, const GatherRows& o);

// tokens [n, t] = stream [size] from ids[n] * stride on; next [n, t] = the tokens after each of
// them. All i32. REQUIRES: 0 <= ids[n] * stride < size - t. Throws Error on the CPU.
void gather_windows(KernelContext& context, const GatherWindows& o);

}  // namespace engine::ops
