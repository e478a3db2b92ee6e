// Defines the words of CUDA C++ that kernels use, for a C++ compiler: threads are those of simt.h.
#pragma once

#include <cuda_runtime_api.h>

#include "tests/emulator/simt/simt.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define threadIdx (::simt::thread_index())
#define blockIdx (::simt::block_index())
#define blockDim (::simt::block_dim())
#define gridDim (::simt::grid_dim())
#define __syncthreads() ::simt::sync_threads()
#define __syncwarp() ::simt::sync_warp()
