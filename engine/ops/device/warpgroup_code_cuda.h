// Tells whether kernels with the warpgroup instructions of sm_90a (warpgroup_mma.h) can be
// launched.
#pragma once

namespace engine::ops::cuda {

// Returns true if the calling thread's device has compute capability 9.0 and runs the program's
// code for sm_90a. It may also run code for 8.0, as PTX: with CUDA_FORCE_PTX_JIT=1, or if the
// program was compiled without sm_90a. The runtime is queried once per device and thread. Throws
// CudaError.
bool has_warpgroup_code();

}  // namespace engine::ops::cuda
