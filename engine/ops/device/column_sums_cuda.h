// Sums over the rows of a matrix in device memory, for gradients of biases.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

// Returns the scratch size for up to `rows` rows.
std::size_t column_sums_scratch_bytes(std::int64_t rows, std::int64_t columns,
                                      DType dtype = DType::kF32);

// to[c] = or += sum over r of from[r, c]. from [rows, columns], dense; to has
// wide_dtype(dtype).
// Scratch is used from its start.
void column_sums(KernelContext& context, const void* from, DType dtype, std::int64_t rows,
                 std::int64_t columns, void* to, Write write);

}  // namespace engine::ops::cuda
