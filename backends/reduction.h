// Element-wise reduction, used by all backends so that they give the same bits.
#pragma once

#include <cstddef>

#include "backends/communicator.h"

namespace backends {

// Computes into[i] = into[i] op from[i]. A reduction over ranks folds rank 0, 1, 2 ... in this
// order. For kMax and kMin, NaN takes precedence over numbers. kI64 and kU8 sums wrap around. kF16
// and kBF16 are added in binary32 and rounded after each step. No alignment is required. Throws
// Error for i32, which has no reduction.
void reduce_into(void* into, const void* from, std::size_t count, DType type, ReduceOp op);

// Computes out[i] = a[i] op b[i]; `out` may be `a` or `b`. Otherwise the ranges must not overlap.
void reduce_pair(void* out, const void* a, const void* b, std::size_t count, DType type,
                 ReduceOp op);

// Computes out[i] = parts[0][i] op parts[1][i] op ..., in this order; `out` may be one of the
// parts. The bits do not depend on which part it is, even if several numbers are NaN.
// REQUIRES: parts >= 1.
void reduce_parts(void* out, const void* const* parts, int part_count, std::size_t count,
                  DType type, ReduceOp op);

struct ElementRange {
  std::size_t begin, end;
  std::size_t count() const { return end - begin; }
};
// Returns the share of `rank`: [rank*count/world, (rank+1)*count/world).
inline ElementRange slice_of(std::size_t count, int rank, int world_size) {
  const auto n = static_cast<std::size_t>(world_size), r = static_cast<std::size_t>(rank);
  const std::size_t each = count / n, rest = count % n;  // avoids the overflow of r * count
  return {r * each + r * rest / n, (r + 1) * each + (r + 1) * rest / n};
}

}  // namespace backends
