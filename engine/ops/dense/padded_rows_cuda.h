// A copy of a matrix with longer rows, for matrix products: rows of a vocabulary of 50257 bf16
// begin at any multiple of 2 bytes and would be read 2 bytes at a time, for each tile again; copied
// once to rows of whole 128 bytes they are read 16 at a time. The copy is in scratch, so that
// neither layers nor checkpoints know of it.
#pragma once

#include "engine/core/tensor_view.h"
#include "engine/ops/common/kernel_context.h"

namespace engine::ops::cuda {

struct PaddedRows {
  const void* data;
  std::int64_t pitch;  // in elements
  std::span<std::byte> scratch_left;
};

// Scratch that the copy takes for up to so many rows, 0 where none is made: where rows are aligned
// to 16 bytes, or the matrix is so small that a launch costs more.
std::size_t padded_rows_bytes(std::int64_t rows, std::int64_t columns, DType dtype);

// `matrix` [rows, columns] as it is, or its copy at the start of context.scratch. Elements of the
// copy beyond the columns are zeros.
PaddedRows padded_rows(KernelContext& context, TensorView matrix);

}  // namespace engine::ops::cuda
