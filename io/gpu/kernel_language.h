// Selects the language of kernels: CUDA C++ if nvcc compiles them, otherwise the same keywords for
// C++, which the include folder of a GPU's emulator defines (ENGINE_WITH_CUDA=EMULATED;
// tools/cmake/Dependencies.cmake selects it). Included by .cu files only.
#pragma once

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include <emulated_kernel_language.h>
#endif
