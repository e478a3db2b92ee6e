// The operands of the attention kernels on a CUDA device, and the functions that start them. For
// .cu files only.
#pragma once

#include <type_traits>

#include "engine/ops/attention/attention_cuda.h"
#include "engine/ops/device/device_code.h"

namespace engine::ops::cuda {

// Every head of queries of every sample is one problem with number sample * heads + head. The heads
// of a group, `group` adjacent problems, read the same keys and values.
template <class T>
struct AttentionOperands {
  std::int64_t n, t;
  int heads, group, size;
  std::int64_t stride;  // distance between rows of q, k or v
  Wide<T> scale;        // 1 / sqrt(size)
  const T* qkv;
  T* y;              // forward
  Wide<T>* lse;      // [problems, t]; forward: may be nullptr
  const T* dy;       // this and the members below: backward only
  Wide<T>* weights;  // [problems, t]: sum over the keys of a probability times its gradient
  T* dqkv;
  bool add;

  // Dropout: a probability is kept if its word's upper 24 bits reach `threshold`, and is multiplied
  // by `factor`.
  const std::int64_t* sample_ids;  // nullptr: no dropout
  std::uint64_t key, fixed_epoch;
  const std::uint64_t* epoch;  // nullptr: use fixed_epoch
  std::uint32_t threshold;
  Wide<T> factor;

  __host__ __device__ std::int64_t width() const { return std::int64_t{heads} * size; }
  // The distance from a head of k to that of v.
  __device__ std::int64_t kv_width() const { return (stride - width()) / 2; }
  // Returns the offset of the problem's q in qkv and dqkv.
  __device__ std::int64_t q_offset(std::int64_t problem) const {
    return problem / heads * t * stride + problem % heads * size;
  }
  // Returns the offset of the problem's k; its v follows at kv_width().
  __device__ std::int64_t k_offset(std::int64_t problem) const {
    return problem / heads * t * stride + width() +
           static_cast<int>(problem % heads) / group * size;
  }
  __device__ std::int64_t y_offset(std::int64_t problem) const {
    return problem / heads * t * width() + problem % heads * size;
  }
};

// The kind of attention that a kernel computes, as a template argument: in causal attention, query
// i sees the keys up to i, else all.
template <class Start>
void with_mask(bool causal, Start start) {
  causal ? start(std::true_type{}) : start(std::false_type{});
}

inline constexpr int kMaxTiledHeadSize = 128;

// Kernels in float32 arithmetic for every head size up to kMaxTiledHeadSize; see
// attention_simt_cuda.cu.
template <class T>
void start_simt_forward(const AttentionOperands<T>& operands, bool causal, void* stream);
template <class T>
void start_simt_backward(const AttentionOperands<T>& operands, bool causal, void* stream);

// Kernels in plain arithmetic for every storage, also f64, and every head size up to kMaxHeadSize;
// see attention_plain_cuda.cu. Backward writes `weights` itself.
template <class T>
void start_plain_forward(const AttentionOperands<T>& operands, bool causal, void* stream);
template <class T>
void start_plain_backward(const AttentionOperands<T>& operands, bool causal, void* stream);

// In the kernels on tensor cores, the rows of a block's own operand, and those of the other operand
// at a time, of `row_bytes` each: two stages of two of the latter must fit beside two tiles of the
// former in 99 KiB. Rows are 16 bytes apart.
inline constexpr int kMmaOwnRows = 64;
constexpr int mma_other_rows(int row_bytes) {
  return row_bytes <= 128 ? 64 : row_bytes <= 256 ? 32 : 16;
}
constexpr std::size_t mma_shared_bytes(int row_bytes) {
  return static_cast<std::size_t>((2 * kMmaOwnRows + 4 * mma_other_rows(row_bytes)) *
                                  (row_bytes + 16));
}

// Kernels on tensor cores, for head sizes of 32, 64 and 128 and rows aligned to 16 bytes; see
// attention_mma_*_cuda.cu. f32 operands are rounded according to `products`, which must not be
// kF32; 16-bit operands are multiplied without rounding.
template <class T>
void start_mma_forward(const AttentionOperands<T>& operands, bool causal, Products products,
                       void* stream);
template <class T>
void start_mma_backward(const AttentionOperands<T>& operands, bool causal, Products products,
                        void* stream);

}  // namespace engine::ops::cuda
