// Top-k sums (top_k_entry.h) in the memory of a CUDA device, with the bits of TopKSum on the CPU;
// a NaN may have another payload.
//
// Calls throw Error for a context of the CPU; they only enqueue work on the context's stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/ops/codes/quantized_operands.h"
#include "engine/ops/codes/top_k_operands.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Returns the scratch of take_top_k(), for any number of elements.
std::size_t top_k_scratch_bytes();
// error += values; code = the `sent` elements of the error that are largest in magnitude, the first
// ones of those that are equal; these become zero in the error, and so do others that are not
// finite. `code` is aligned to 8 bytes.
void take_top_k(KernelContext& context, const TopKOperands& operands, std::int64_t sent,
                std::byte* code);
// values = the sum of the ranks' codes of `sent` elements, in rank order. If a code has an index
// outside the values, which no encoder makes, their first element is NaN. Codes are aligned to 4
// bytes.
void add_top_k(KernelContext& context, std::int64_t sent, const RankCodes& of_ranks,
               TensorView values);

}  // namespace engine::ops
