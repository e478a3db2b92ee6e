// Sums of quantized codes (quantized_block.h) in the memory of a CUDA device, with the bits of
// QuantizedCode on the CPU.
//
// Calls throw Error for a context of the CPU; they only enqueue work on the context's stream. Codes
// are block after block, each with the bytes of a whole one but the last, without alignment. Spans
// are all f32 or all f64.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/ops/codes/quantized_operands.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// codes = those of values + decay * error; rest = what they drop, 0 where that is not finite. Spans
// of equal length; `rest` may be `error`.
void quantize(KernelContext& context, const QuantizedSpan& span, double decay, TensorView values,
              TensorView error, TensorView rest, std::byte* codes);

// codes = those of the sum of the ranks' codes; rest += what they drop, unless that is not finite.
void quantize_sum(KernelContext& context, const QuantizedSpan& span, const RankCodes& of_ranks,
                  TensorView rest, std::byte* codes);
// values = the sum of the ranks' codes, in rank order. The span's noise is not used.
void add_quantized(KernelContext& context, const QuantizedSpan& span, const RankCodes& of_ranks,
                   TensorView values);

}  // namespace engine::ops
