// The maximum over a block. Included by .cu files only.
#pragma once

#include "engine/ops/device/device_code.h"

namespace engine::ops::cuda {

// Returns the maximum over the block in every thread; `partial` is shared memory for one T per
// warp, as for block_sum().
template <class T>
__device__ __forceinline__ T block_max(T value, T* partial) {
  value = warp_max(value);
  __syncthreads();  // earlier uses of `partial` are complete
  if (lane_index() == 0) partial[warp_index()] = value;
  __syncthreads();
  for (int w = 0; w < static_cast<int>(blockDim.x) / kWarp; ++w)
    value = partial[w] > value ? partial[w] : value;
  return value;
}

}  // namespace engine::ops::cuda
