// Sums of quantized codes on a CUDA device. quantized_codes.h describes and quantized_codes.cc
// checks the operands.
#pragma once

#include <cstddef>

#include "engine/core/tensor_view.h"
#include "engine/ops/codes/quantized_operands.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

void quantize(KernelContext& context, const QuantizedSpan& span, double decay, TensorView values,
              TensorView error, TensorView rest, std::byte* codes);
void quantize_sum(KernelContext& context, const QuantizedSpan& span, const RankCodes& of_ranks,
                  TensorView rest, std::byte* codes);
void add_quantized(KernelContext& context, const QuantizedSpan& span, const RankCodes& of_ranks,
                   TensorView values);

}  // namespace engine::ops::cuda
