// Sums of sparse codes on a CUDA device. sparse_codes.h describes and sparse_codes.cc checks the
// operands.
#pragma once

#include <cstddef>

#include "engine/ops/codes/quantized_operands.h"
#include "engine/ops/codes/sparse_operands.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

void select_largest(KernelContext& context, const SparseSpan& span, const SparseOperands& operands,
                    std::byte* codes);
void add_selected(KernelContext& context, const SparseSpan& span, const RankCodes& of_ranks,
                  TensorView values);

}  // namespace engine::ops::cuda
