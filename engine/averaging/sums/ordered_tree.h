// Sums whose rounding depends only on the order of the parts, not on how many ranks hold them.
//
// Floating-point addition is not associative: (a + b) + (c + d) and ((a + b) + c) + d may differ in
// the last bit. The tree fixes the parentheses once for all parts. Eight parts are always
// ((0+1)+(2+3))+((4+5)+(6+7)); two ranks with four parts each compute one half of it, four ranks
// with two parts one quarter, and the sums of the halves or quarters are combined by the upper
// levels of the same tree. Hence 1, 2, 4 and 8 ranks get the same bits (ADR 12).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/communicator.h"
#include "engine/core/dtype.h"

namespace engine {

// Combines parts 0 .. count-1 in place as ((0+1)+(2+3))+((4+5)+...): combine(into, from) for each
// pair; the result is part 0's. Folding runs of 2^k parts first and the results afterwards is the
// same tree.
template <class Combine>
void fold_tree(std::size_t count, Combine combine) {
  for (std::size_t stride = 1; stride < count; stride *= 2)
    for (std::size_t i = 0; i + stride < count; i += 2 * stride) combine(i, i + stride);
}

// A block of moments: how many rows, then a mean per channel, then a sum of squared differences
// from it per channel. `into` becomes that of both sets of rows. Source: Chan, Golub and LeVeque,
// 1979 (pairwise merging of variances).
void merge_moments(std::span<double> into, std::span<const double> from);

// `count` elements at `into` += those at `from`. f32 or f64.
void add_elements(DType dtype, void* into, const void* from, std::size_t count);

// Sums memory over all ranks by the tree over their numbers: the same bits everywhere, on every
// wire, and for every world of 2^k ranks whose parts are folded runs of the same tree. Every rank
// receives every part, so it moves (world - 1) times the data.
class TreeSum {
 public:
  explicit TreeSum(backends::Communicator& communicator);  // which outlives it
  void sum(DType dtype, void* data, std::size_t count);    // in place; collective

 private:
  backends::Communicator& communicator_;
  std::vector<std::byte> parts_;  // one block of every rank
};

}  // namespace engine
