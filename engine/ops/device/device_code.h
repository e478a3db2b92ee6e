// The language of the kernels in these folders: CUDA C++ (io/gpu/kernel_language.h), and the few
// features of it that need our own names so that the same source also runs on the CPU
// (ENGINE_WITH_CUDA=EMULATED). Included by .cu files only.
//
// Rules of all .cu files
//  - Kernels are started by launch(), never by <<<>>>. The block size is a multiple of 32 threads.
//  - Shared memory is dynamic: one struct or array per kernel, from block_shared<T>(); its initial
//    contents are undefined.
//  - No thread of a warp returns while others of it still shuffle, vote, multiply matrices or wait
//    at a barrier.
//  - No atomics on floating-point numbers. The order of sums depends only on the shape (and on the
//    device's model), so that every run has the same bits.
//  - Offsets that may exceed 2^31 are std::int64_t. A grid's y and z are at most 65535.
//  - Every kernel must fit the resource limits of sm_80 (99 KiB of shared memory per block with
//    opt-in). Devices before 8.0 have 48 to 96 KiB: a host function chooses among kernels by
//    max_shared_bytes().
//  - Instructions that devices before 8.0 lack stand in async_copy.h, tensor_core.h and
//    warpgroup_mma.h alone.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <tuple>

#include "engine/core/cuda.h"
#include "engine/core/dtype.h"
#include "engine/ops/device/launch_grid.h"
#include "engine/ops/device/wide.h"
#include "io/gpu/kernel_language.h"
#include "io/gpu/kernel_resources.h"

// The compute capability that device code is compiled for, as __CUDA_ARCH__. Tests define it for
// capabilities that their nvcc does not know.
#if !defined(ENGINE_COMPUTE) && defined(__CUDA_ARCH__)
#define ENGINE_COMPUTE __CUDA_ARCH__
#endif
#if defined(ENGINE_COMPUTE)
#define ENGINE_BEFORE_80 (ENGINE_COMPUTE < 800)
#else
#define ENGINE_BEFORE_80 0
#endif

namespace engine::ops::cuda {

inline constexpr int kWarp = 32;

// kernel<<<grid, block, shared_bytes, stream>>>(arguments...). Error texts contain `name`. Throws
// CudaError.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), Grid grid, int threads,
            std::size_t shared_bytes, void* stream, Arguments... arguments) {
  engine::cuda::prepare_launch({reinterpret_cast<const void*>(kernel), name, threads, shared_bytes},
                               std::int64_t{grid.x} * grid.y * grid.z);
#if defined(__CUDACC__)
  kernel<<<dim3(grid.x, grid.y, grid.z), dim3(static_cast<unsigned>(threads)), shared_bytes,
           static_cast<cudaStream_t>(stream)>>>(static_cast<Parameters>(arguments)...);
  const auto code = static_cast<int>(cudaGetLastError());
#else
  const auto start = [=] {
    const simt::Index blocks{grid.x, grid.y, grid.z}, block{static_cast<unsigned>(threads), 1, 1};
    if (simt::runs_ptx()) {
      const std::tuple<Parameters...> given(static_cast<Parameters>(arguments)...);
      std::apply(
          [&](const Parameters&... each) {
            simt::run_ptx(reinterpret_cast<const void*>(kernel),
                          {{&each, sizeof each, alignof(Parameters)}...}, blocks, block,
                          shared_bytes, name);
          },
          given);
      return;
    }
    simt::run_grid(blocks, block, shared_bytes, name,
                   [=] { kernel(static_cast<Parameters>(arguments)...); });
  };
  const int code = simt::launch(stream, reinterpret_cast<const void*>(kernel), name, start);
#endif
  engine::cuda::check_launch(code, name, stream);
}

// Returns the block's dynamic shared memory as T.
template <class T>
__device__ __forceinline__ T& block_shared() {
#if defined(__CUDACC__)
  extern __shared__ __align__(128) unsigned char engine_block_shared[];
  return *reinterpret_cast<T*>(engine_block_shared);
#else
  if (sizeof(T) > simt::shared_bytes())
    throw std::logic_error("a kernel was launched with too little shared memory");
  return *static_cast<T*>(simt::shared_memory());
#endif
}

__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }

// All lanes of the warp must call these together.
template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int mask) {
#if defined(__CUDACC__)
  return __shfl_xor_sync(0xffffffffu, value, mask);
#else
  T result;
  std::memcpy(&result,
              simt::warp_gather(&value, sizeof value) +
                  (simt::lane() ^ static_cast<unsigned>(mask)) * simt::kLaneBytes,
              sizeof result);
  return result;
#endif
}

template <class T>
__device__ __forceinline__ T shuffle_from(T value, int source_lane) {
#if defined(__CUDACC__)
  return __shfl_sync(0xffffffffu, value, source_lane);
#else
  T result;
  std::memcpy(&result,
              simt::warp_gather(&value, sizeof value) +
                  static_cast<unsigned>(source_lane) * simt::kLaneBytes,
              sizeof result);
  return result;
#endif
}

// The sum and the maximum over the warp, the same in every lane and always in the same order.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
template <class T>
__device__ __forceinline__ T warp_max(T value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const T other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  return value;
}

// The sum over the block in a fixed order; `partial` is shared memory for one T per warp. The
// result is valid in every thread.
template <class T>
__device__ __forceinline__ T block_sum(T value, T* partial) {
  value = warp_sum(value);
  __syncthreads();  // earlier uses of `partial` are complete
  if (lane_index() == 0) partial[warp_index()] = value;
  __syncthreads();
  T total{};
  for (int w = 0; w < static_cast<int>(blockDim.x) / kWarp; ++w) total += partial[w];
  return total;
}

#if defined(__CUDACC__)
// Functions of <cmath> for both types of numbers that kernels compute in.
__device__ __forceinline__ float exp(float x) { return expf(x); }
__device__ __forceinline__ float expm1(float x) { return expm1f(x); }
__device__ __forceinline__ float log(float x) { return logf(x); }
__device__ __forceinline__ float log1p(float x) { return log1pf(x); }
__device__ __forceinline__ float sqrt(float x) { return sqrtf(x); }
__device__ __forceinline__ float tanh(float x) { return tanhf(x); }
__device__ __forceinline__ float erf(float x) { return erff(x); }
__device__ __forceinline__ float fabs(float x) { return fabsf(x); }
__device__ __forceinline__ float fmax(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ float pow(float x, float y) { return powf(x, y); }
__device__ __forceinline__ double exp(double x) { return ::exp(x); }
__device__ __forceinline__ double expm1(double x) { return ::expm1(x); }
__device__ __forceinline__ double log(double x) { return ::log(x); }
__device__ __forceinline__ double log1p(double x) { return ::log1p(x); }
__device__ __forceinline__ double sqrt(double x) { return ::sqrt(x); }
__device__ __forceinline__ double tanh(double x) { return ::tanh(x); }
__device__ __forceinline__ double erf(double x) { return ::erf(x); }
__device__ __forceinline__ double fabs(double x) { return ::fabs(x); }
__device__ __forceinline__ double fmax(double a, double b) { return ::fmax(a, b); }
__device__ __forceinline__ double pow(double x, double y) { return ::pow(x, y); }
#else
// CUDA's device functions that <cmath> lacks.
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((std::uint64_t{a} * b) >> 32);
}
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline double __dadd_rn(double a, double b) { return a + b; }
using std::ceil, std::erf, std::erfc, std::exp, std::expm1, std::fabs, std::floor, std::fma,
    std::fmax, std::fmin, std::log, std::log1p, std::pow, std::sqrt, std::tanh;
inline float expf(float x) { return std::exp(x); }
inline float logf(float x) { return std::log(x); }
inline float sqrtf(float x) { return std::sqrt(x); }
inline float tanhf(float x) { return std::tanh(x); }
inline float erff(float x) { return std::erf(x); }
inline float fmaxf(float a, float b) { return std::fmax(a, b); }
inline float fminf(float a, float b) { return std::fmin(a, b); }
inline float fmaf(float a, float b, float c) { return std::fma(a, b, c); }
inline float fabsf(float x) { return std::fabs(x); }
#endif

// Approximate in float32, within 2 units in the last place; exact in float64.
__device__ __forceinline__ float divide_fast(float a, float b) { return __fdividef(a, b); }
__device__ __forceinline__ double divide_fast(double a, double b) { return a / b; }
__device__ __forceinline__ float inverse_root(float x) { return rsqrtf(x); }
__device__ __forceinline__ double inverse_root(double x) { return 1 / sqrt(x); }

// 16 bytes at once: N = 16 / sizeof(T) elements.
template <class T>
struct alignas(16) Packed {
  static constexpr int kCount = static_cast<int>(16 / sizeof(T));
  T at[kCount];
};
template <class T>
__device__ __forceinline__ Packed<T> load_packed(const T* from) {
  return *reinterpret_cast<const Packed<T>*>(from);
}
template <class T>
__device__ __forceinline__ void store_packed(T* to, const Packed<T>& value) {
  *reinterpret_cast<Packed<T>*>(to) = value;
}

}  // namespace engine::ops::cuda
