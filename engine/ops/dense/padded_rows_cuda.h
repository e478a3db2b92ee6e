// Copies a matrix to longer rows for matrix products. Rows of a vocabulary of 50257 bf16 start at
// any multiple of 2 bytes and would be read 2 bytes at a time, again for each tile. After one copy
// to rows of whole 128 bytes they are read 16 bytes at a time. The copy is in scratch, so that
// layers and checkpoints are not affected.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

struct PaddedRows {
  const void* data;
  std::int64_t pitch;  // in elements
  std::span<std::byte> scratch_left;
};

// The scratch size of the copy for up to `rows` rows, 0 if none is made: if rows are aligned to 16
// bytes, or the matrix is so small that a launch costs more.
std::size_t padded_rows_bytes(std::int64_t rows, std::int64_t columns, DType dtype);

// Returns `matrix` [rows, columns] itself, or its copy at the start of context.scratch. Elements of
// the copy beyond the columns are zeros.
PaddedRows padded_rows(KernelContext& context, TensorView matrix);

}  // namespace engine::ops::cuda
