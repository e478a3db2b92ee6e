// What kernels are written in: CUDA C++ where nvcc compiles them, else the same words for C++,
// whose threads are those of the stand-in (ENGINE_WITH_CUDA=EMULATED). The only header outside of
// stand_in/ that knows which. Included by .cu files only.
#pragma once

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include <cuda_runtime_api.h>

#include "io/gpu/stand_in/simt.h"

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
#endif
