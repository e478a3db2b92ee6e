// Divides a matrix [rows, channels] in memory among threads for kernels that work channel by
// channel: batch normalization, global pooling. Included by .cu files only.
//
// A thread processes one pack of channels and iterates over its rows. The threads of a block cover
// `columns` adjacent packs of channels and `lanes` rows, so that their reads are contiguous. The
// assignment of rows to threads depends only on the shape.
#pragma once

#include <algorithm>
#include <type_traits>

#include "engine/ops/device/packs.h"

namespace engine::ops::cuda {

constexpr int kRowThreads = 256;

struct RowBlocks {
  std::int64_t rows = 0, rows_per_block = 1;  // the last block has fewer
  int channels = 0, packs = 0;                // packs per row
  int columns = 1, lanes = 1;                 // per block
  int row_blocks = 1, column_blocks = 1;      // the grid's x and y

  Grid grid() const {
    return {static_cast<unsigned>(row_blocks), static_cast<unsigned>(column_blocks)};
  }
};

// An upper bound of the number of row blocks, from the rows per thread and the blocks per grid.
// Unlike the rounded result of make_row_blocks(), it grows monotonically with the rows, so that it
// can be used to size scratch.
inline std::int64_t max_row_blocks(const RowBlocks& b, std::int64_t rows_each,
                                   std::int64_t max_blocks) {
  const std::int64_t wanted = divide_up(b.rows, b.lanes * rows_each),
                     most = std::max<std::int64_t>(max_blocks / b.column_blocks, 1);
  return std::clamp<std::int64_t>(wanted, 1, most);
}
// Packs have `width` channels. A thread has at least `rows_each` rows unless there are fewer, and
// more if there would otherwise be more than `max_blocks` blocks.
inline RowBlocks make_row_blocks(std::int64_t rows, std::int64_t channels, int width,
                                 std::int64_t rows_each, std::int64_t max_blocks) {
  RowBlocks b;
  b.rows = rows;
  b.channels = static_cast<int>(channels);
  b.packs = b.channels / width;
  b.column_blocks = static_cast<int>(divide_up(b.packs, kWarp));
  b.columns = static_cast<int>(divide_up(b.packs, b.column_blocks));
  b.lanes = kRowThreads / b.columns;
  b.rows_per_block = std::max<std::int64_t>(
      divide_up(divide_up(rows, max_row_blocks(b, rows_each, max_blocks)), b.lanes) * b.lanes, 1);
  b.row_blocks = static_cast<int>(std::max<std::int64_t>(divide_up(rows, b.rows_per_block), 1));
  return b;
}

// This thread's part of a block of rows. Threads outside have no part, but take part in the block's
// barriers.
struct RowPlace {
  bool inside;
  int lane, channel;
  std::int64_t first, last;  // rows first, first + lanes, ... below last
};
template <int W>
__device__ __forceinline__ RowPlace row_place(const RowBlocks& b, unsigned row_block) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread / b.columns;
  const int pack = static_cast<int>(blockIdx.y) * b.columns + thread - lane * b.columns;
  const std::int64_t start = std::int64_t{row_block} * b.rows_per_block,
                     end = start + b.rows_per_block;
  return {lane < b.lanes && pack < b.packs, lane, pack * W, start + lane,
          end < b.rows ? end : b.rows};
}

// Sums `values` over the lanes of a block by halving; the result is in lane 0. `shared` has Count *
// kRowThreads elements of V.
template <int Count, class V>
__device__ __forceinline__ void sum_over_lanes(const RowBlocks& b, int lane, V (&values)[Count],
                                               V* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  int half = 1;
  while (2 * half < b.lanes) half *= 2;
  __syncthreads();  // earlier uses of `shared` are complete
  ENGINE_UNROLL
  for (int k = 0; k < Count; ++k) shared[k * kRowThreads + thread] = values[k];
  for (; half > 0; half /= 2) {
    __syncthreads();
    const bool takes = lane < half && lane + half < b.lanes;
    if (!takes) continue;
    ENGINE_UNROLL
    for (int k = 0; k < Count; ++k) {
      values[k] += shared[k * kRowThreads + thread + half * b.columns];
      shared[k * kRowThreads + thread] = values[k];
    }
  }
}

// Calls call(std::integral_constant<int, W>): W is a pack of 16 bytes if the rows consist of these
// and all operands (absent ones aside) are aligned to it, otherwise 1. Always 1 for float64, which
// needs few kernels more than fast ones.
template <class T, class Call>
void with_width(std::int64_t channels, std::initializer_list<const void*> operands, Call call) {
  constexpr int kWidth = Packed<T>::kCount;
  if constexpr (!std::is_same_v<T, double>)
    if (channels % kWidth == 0 && aligned_to_16(operands))
      return call(std::integral_constant<int, kWidth>{});
  call(std::integral_constant<int, 1>{});
}

}  // namespace engine::ops::cuda
