// PowerSGD's sums in the memory of a CUDA device, with the bits of PowerSgdSum on the CPU: each
// element of a product is one sum in order.
//
// A sum is pack_low_rank(), an all-reduce of `packed`, project_low_rank(), an all-reduce of
// `factors`, expand_low_rank(). Calls throw Error for a context of the CPU; they only enqueue work
// on the context's stream.
#pragma once

#include <span>

#include "engine/ops/common/kernel_context.h"
#include "engine/ops/low_rank/low_rank_operands.h"

namespace engine::ops {

// Numbers the tiles of the parts, of which the first `matrices` are matrices. Returns the table
// without the address of the parts in device memory.
LowRankTable number_tiles(std::span<LowRankPart> parts, int matrices, int rank);

// The error of matrices += gradients; packed = their P = error * Q, and the gradients of other
// parts.
void pack_low_rank(KernelContext& context, const LowRankTable& table,
                   const LowRankOperands& operands);
// Makes the columns of each P orthonormal; factors = Q = error^T * P; error -= P * Q^T, 0 where
// that is not finite. Gradients of parts that are no matrices = packed.
void project_low_rank(KernelContext& context, const LowRankTable& table,
                      const LowRankOperands& operands);
// Gradients of matrices = P * Q^T. Then columns of Q that are zero, or not finite, are drawn again.
void expand_low_rank(KernelContext& context, const LowRankTable& table,
                     const LowRankOperands& operands);

}  // namespace engine::ops
