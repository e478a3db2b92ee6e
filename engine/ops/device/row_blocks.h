// How kernels share out a matrix [rows, channels] in memory when they work channel by channel:
// batch normalization, global pooling. Included by .cu files only.
//
// A thread keeps to one pack of channels and goes down its rows. The threads of a block lie side by
// side along the channels, `columns` packs, then down `lanes` rows, so that what they read together
// is contiguous. Which rows a thread adds up follows from the shape alone.
#pragma once

#include <algorithm>
#include <type_traits>

#include "engine/ops/device/packs.h"

namespace engine::ops::cuda {

constexpr int kRowThreads = 256;

struct RowBlocks {
  std::int64_t rows = 0, rows_per_block = 1;  // the last block has fewer
  int channels = 0, packs = 0;                // packs: of a row
  int columns = 1, lanes = 1;                 // of a block
  int row_blocks = 1, column_blocks = 1;      // the grid's x and y

  Grid grid() const {
    return {static_cast<unsigned>(row_blocks), static_cast<unsigned>(column_blocks)};
  }
};

// At most how many row blocks there are, by rows that each thread should have and blocks that the
// grid should have: a number that grows with the rows, unlike the rounded one of make_row_blocks(),
// so that scratch is sized by it.
inline std::int64_t max_row_blocks(const RowBlocks& b, std::int64_t rows_each,
                                   std::int64_t max_blocks) {
  const std::int64_t wanted = divide_up(b.rows, b.lanes * rows_each),
                     most = std::max<std::int64_t>(max_blocks / b.column_blocks, 1);
  return std::clamp<std::int64_t>(wanted, 1, most);
}
// In packs of `width` channels. A thread has at least `rows_each` rows unless there are fewer, and
// more where there would otherwise be more than `max_blocks` blocks.
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

// This thread's part of a block of rows. Threads outside have none, but wait at the block's
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

// Adds up `values` over the lanes of a block by halves; the result is in lane 0. `shared`: Count *
// kRowThreads of V.
template <int Count, class V>
__device__ __forceinline__ void sum_over_lanes(const RowBlocks& b, int lane, V (&values)[Count],
                                               V* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  int half = 1;
  while (2 * half < b.lanes) half *= 2;
  __syncthreads();  // whoever used `shared` before is done
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

// call(std::integral_constant<int, W>): W is a pack of 16 bytes where the rows are made of these
// and all operands (absent ones aside) are aligned to it, else 1.
template <class T, class Call>
void with_width(std::int64_t channels, std::initializer_list<const void*> operands, Call call) {
  constexpr int kWidth = Packed<T>::kCount;
  if (channels % kWidth == 0 && aligned_to_16(operands))
    return call(std::integral_constant<int, kWidth>{});
  call(std::integral_constant<int, 1>{});
}

}  // namespace engine::ops::cuda
