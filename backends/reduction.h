// Element-wise reduction, used by all backends so that they give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/communicator.h"
#include "io/base/numbers/part_bounds.h"

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
// Returns the share of `rank`, base::part_bounds().
inline ElementRange slice_of(std::size_t count, int rank, int world_size) {
  const auto bounds = base::part_bounds(count, static_cast<std::size_t>(rank),
                                        static_cast<std::size_t>(world_size));
  return {bounds.begin, bounds.end};
}

// Divides the elements of an all-reduce among the ranks that sum them: equally, or by weights.
// Every slice is folded in rank order, so the division has no effect on the bits.
class SumSlices {
 public:
  // One weight for each rank; none: equal slices. Throws ConfigurationError for another number of
  // weights, and if their sum is 0. REQUIRES: the sum is below 2^48.
  SumSlices(int ranks, std::span<const std::uint32_t> weights);

  bool are_equal() const { return ends_.empty(); }
  ElementRange of(std::size_t count, int rank) const;
  // Returns the count of which each slice has at most `most` elements, and one more by rounding.
  std::size_t count_for(std::size_t most) const;

 private:
  static constexpr std::size_t kWhole = 1 << 16;
  int ranks_;
  std::vector<std::size_t> ends_;  // [rank] of kWhole
  std::size_t largest_ = 0;
};

}  // namespace backends
