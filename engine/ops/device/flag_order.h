// Numbers the flags of a block of threads in the order of their places: place r * 256 + t belongs
// to row r of thread t. Included by .cu files only.
#pragma once

#include <cstdint>

#include "engine/ops/device/device_code.h"
#include "engine/ops/device/packs.h"

namespace engine::ops::cuda {

inline constexpr int kFlagThreads = 256, kFlagWarps = kFlagThreads / kWarp;
inline constexpr int kFlagRows = 16;  // of a thread
// Shared memory: by row and warp, the number of flags before it.
using FlagStarts = int[kFlagRows * kFlagWarps];

// A number of lanes for each row, of 8 bits.
struct RowCounts {
  std::uint64_t low = 0, high = 0;

  __device__ __forceinline__ int at(int row) const {
    return static_cast<int>((row < 8 ? low >> 8 * row : high >> 8 * (row - 8)) & 255);
  }
  __device__ __forceinline__ void add(int row, bool flag) {
    const std::uint64_t one = flag ? 1 : 0;
    if (row < 8)
      low += one << 8 * row;
    else
      high += one << 8 * (row - 8);
  }
};

// Replaces the flags of this lane by their sums over this lane and those before it.
__device__ __forceinline__ RowCounts sum_lanes(RowCounts counts) {
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int from = lane_index() < distance ? lane_index() : lane_index() - distance;
    const std::uint64_t low = shuffle_from(counts.low, from),
                        high = shuffle_from(counts.high, from);
    if (from == lane_index()) continue;
    counts.low += low;
    counts.high += high;
  }
  return counts;
}

// Replaces numbers by the sums of those before them. All lanes of one warp.
__device__ __forceinline__ void sum_before(FlagStarts& numbers) {
  constexpr int kEach = kFlagRows * kFlagWarps / kWarp;
  int* const own = numbers + kEach * lane_index();
  int total = 0;
  for (int i = 0; i < kEach; ++i) total += own[i];
  int before = total;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int from = lane_index() < distance ? lane_index() : lane_index() - distance;
    const int other = shuffle_from(before, from);
    if (from != lane_index()) before += other;
  }
  before -= total;
  for (int i = 0; i < kEach; ++i) {
    const int number = own[i];
    own[i] = before;
    before += number;
  }
}

// Calls call(row, number) for each flag that is set; `number` counts the flags before it in the
// order of places. All threads of the block.
template <class Call>
__device__ __forceinline__ void for_flags(std::uint32_t flags, FlagStarts& starts, Call call) {
  RowCounts counts;
  ENGINE_UNROLL
  for (int row = 0; row < kFlagRows; ++row) counts.add(row, (flags >> row & 1) != 0);
  counts = sum_lanes(counts);
  __syncthreads();  // earlier uses of the starts are complete
  if (lane_index() == kWarp - 1)
    for (int row = 0; row < kFlagRows; ++row)
      starts[row * kFlagWarps + warp_index()] = counts.at(row);
  __syncthreads();
  if (warp_index() == 0) sum_before(starts);
  __syncthreads();
  ENGINE_UNROLL
  for (int row = 0; row < kFlagRows; ++row)
    if ((flags >> row & 1) != 0)
      call(row, starts[row * kFlagWarps + warp_index()] + counts.at(row) - 1);
}

}  // namespace engine::ops::cuda
