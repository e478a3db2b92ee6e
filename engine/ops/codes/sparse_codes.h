// Sums of sparse codes (sparse_block.h) in the memory of a CUDA device, with the bits of SparseCode
// on the CPU.
//
// Calls throw Error for a context of the CPU; they only enqueue work on the context's stream. Codes
// are block after block, each with the bytes of a whole one but the last, without alignment. Spans
// are all f32 or all f64.
#pragma once

#include <cstddef>

#include "engine/ops/codes/quantized_operands.h"
#include "engine/ops/codes/sparse_operands.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// codes = those of values + decay * error; rest = what they drop, 0 where that is not finite. With
// a velocity, the values are velocity = momentum * velocity + values, and the velocity of sent
// elements becomes zero.
void select_largest(KernelContext& context, const SparseSpan& span, const SparseOperands& operands,
                    std::byte* codes);
// values = the sum of the ranks' codes, in rank order. A block with an index outside of it, which
// no encoder makes, has NaN in its first element.
void add_selected(KernelContext& context, const SparseSpan& span, const RankCodes& of_ranks,
                  TensorView values);

}  // namespace engine::ops
