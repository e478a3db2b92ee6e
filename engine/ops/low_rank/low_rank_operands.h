// Operands of PowerSGD on a CUDA device.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"

namespace engine::ops {

// A parameter: a matrix [rows, columns] that is sent as P [rows, rank] and Q [columns, rank], or
// elements that are sent as they are. The places are in elements.
struct LowRankPart {
  std::int64_t offset = 0;  // in the gradients and in the error
  std::int64_t packed = 0;  // of P, or of the elements
  std::int64_t factor = 0;  // of Q
  std::int64_t rows = 1, columns = 1;
  std::uint64_t key = 0;  // of the numbers of Q's first columns
  // The first tile of the part in each kind of kernel; set by number_tiles().
  std::int64_t element_tile = 0, row_tile = 0, column_tile = 0;
};

// All parts, in device memory: the matrices, then the others.
struct LowRankTable {
  const LowRankPart* parts = nullptr;
  int matrices = 0, count = 0, rank = 1;
  std::int64_t element_tiles = 0, row_tiles = 0, column_tiles = 0;
};

// All f32 or all f64. `gradients` and `error` have the same slots.
struct LowRankOperands {
  TensorView gradients, error;
  TensorView packed;   // the elements of parts that are no matrices, and P of each matrix
  TensorView factors;  // Q of each matrix
};

}  // namespace engine::ops
