// Maxima over a warp and a block into which a NaN passes, so that every thread has the same one.
// Included by .cu files only.
#pragma once

#include "engine/ops/device/device_code.h"

namespace engine::ops::cuda {

// Returns the larger of both; NaN if one of them is NaN.
template <class T>
__device__ __forceinline__ T larger(T a, T b) {
  return a > b || a != a ? a : b;
}

// Returns the maximum over the warp in every lane; NaN if a value is NaN, unlike warp_max().
template <class T>
__device__ __forceinline__ T warp_max_or_nan(T value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = larger(value, shuffle_xor(value, mask));
  return value;
}

// Returns the maximum over the block in every thread; NaN if a value is NaN. `partial` is shared
// memory for one T per warp, as for block_sum().
template <class T>
__device__ __forceinline__ T block_max(T value, T* partial) {
  value = warp_max_or_nan(value);
  __syncthreads();  // earlier uses of `partial` are complete
  if (lane_index() == 0) partial[warp_index()] = value;
  __syncthreads();
  value = partial[0];
  for (int w = 1; w < static_cast<int>(blockDim.x) / kWarp; ++w) value = larger(value, partial[w]);
  return value;
}

}  // namespace engine::ops::cuda
