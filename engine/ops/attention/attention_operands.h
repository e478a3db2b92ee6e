// What the attention kernels of a CUDA device share: their operands, and where they start. For .cu
// files only.
#pragma once

#include "engine/ops/attention/attention.h"
#include "engine/ops/device/device_code.h"

namespace engine::ops::cuda {

// Every head of every sample is one problem, numbered sample * heads + head.
template <class T>
struct AttentionOperands {
  std::int64_t n, t;
  int heads, size;
  float scale;  // 1 / sqrt(size)
  const T* qkv;
  T* y;            // forward
  float* lse;      // [problems, t]; forward: may be nullptr
  const T* dy;     // backward, and all below
  float* weights;  // [problems, t]: sum over the keys of a probability times its gradient
  T* dqkv;
  bool add;

  // Dropout: a probability is kept when its word's upper 24 bits reach `threshold`, and multiplied
  // by `factor`.
  const std::int64_t* sample_ids;  // nullptr: none
  std::uint64_t key, fixed_epoch;
  const std::uint64_t* epoch;  // nullptr: fixed_epoch
  std::uint32_t threshold;
  float factor;

  __host__ __device__ std::int64_t width() const { return std::int64_t{heads} * size; }
  __host__ __device__ std::int64_t stride() const {
    return 3 * width();
  }  // between rows of q, k or v
  // Where the problem's q begins in qkv and dqkv; its k and v come `width()` and twice that later.
  __device__ std::int64_t qkv_offset(std::int64_t problem) const {
    return problem / heads * t * stride() + problem % heads * size;
  }
  __device__ std::int64_t y_offset(std::int64_t problem) const {
    return problem / heads * t * width() + problem % heads * size;
  }
};

// Kernels in plain float32 arithmetic, for every head size up to 128; attention_simt_cuda.cu.
template <class T>
void start_simt_forward(const AttentionOperands<T>& operands, void* stream);
template <class T>
void start_simt_backward(const AttentionOperands<T>& operands, void* stream);

// Kernels on tensor cores, for heads of 32, 64 and 128 and rows aligned to 16 bytes;
// attention_mma_*_cuda.cu. f32 operands are rounded as `products` says, which is not kF32; operands
// of 16 bits are multiplied as they are.
template <class T>
void start_mma_forward(const AttentionOperands<T>& operands, Products products, void* stream);
template <class T>
void start_mma_backward(const AttentionOperands<T>& operands, Products products, void* stream);

}  // namespace engine::ops::cuda
