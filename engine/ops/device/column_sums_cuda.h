// Sums over the rows of a matrix in device memory, for gradients of biases.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

// Returns the scratch size for up to `rows` rows.
std::size_t column_sums_scratch_bytes(std::int64_t rows, std::int64_t columns);

// to[c] = or += sum over r of from[r, c]. from: f32, bf16 or f16 [rows, columns], dense; to: f32.
// Scratch is used from its start.
void column_sums(KernelContext& context, const void* from, DType dtype, std::int64_t rows,
                 std::int64_t columns, float* to, Write write);

}  // namespace engine::ops::cuda
