// Attention in plain arithmetic, for float64 and for heads above 128. A block computes one row of y
// and of dq, or of dk and dv: its threads compute the weights of 128 rows of the other operand, one
// each, and then sum those rows, one or two columns each. Every sum has one order. The softmax is
// an online one, so that no row of scores is stored. Bound by flops and by reads of rows from
// caches.
#include <cmath>
#include <limits>

#include "engine/ops/attention/attention_operands.h"
#include "engine/ops/device/block_max.h"
#include "engine/ops/device/philox_cuda.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 128, kColumns = 2;  // of a thread
static_assert(kThreads * kColumns == kMaxHeadSize);

template <class N>
struct Shared {
  N first[kThreads], second[kThreads], partial[kThreads / kWarp];
};

// Returns the factor of probability (i, j): 0 if it is dropped.
template <class T>
__device__ __forceinline__ Wide<T> kept(const AttentionOperands<T>& o, std::int64_t problem,
                                        std::int64_t i, std::int64_t j) {
  if (o.sample_ids == nullptr) return 1;
  const std::int64_t blocks = (o.t + 3) / 4,
                     row =
                         (o.sample_ids[problem / o.heads] * o.heads + problem % o.heads) * o.t + i;
  const std::uint32_t word = philox_words(o.key, o.epoch != nullptr ? *o.epoch : o.fixed_epoch,
                                          static_cast<std::uint64_t>(row * blocks + j / 4))
                                 .chosen(j);
  return (word >> 8) >= o.threshold ? o.factor : 0;
}

template <class T>
__device__ __forceinline__ Wide<T> dot(const T* a, const T* b, int size) {
  Wide<T> sum = 0;
  for (int c = 0; c < size; ++c) sum += to_wide(a[c]) * to_wide(b[c]);
  return sum;
}

// The columns of a row that a thread has: its own number, and those that are a multiple of kThreads
// after it.
template <class N>
struct Columns {
  N sums[kColumns] = {};

  // Multiplies the sums by `before`, and adds weights[r] times row r, for `count` rows.
  template <class T>
  __device__ __forceinline__ void add(N before, const N* weights, const T* rows,
                                      std::int64_t stride, std::int64_t count, int size) {
    for (int k = 0; k < kColumns; ++k) {
      const int c = static_cast<int>(threadIdx.x) + k * kThreads;
      if (c >= size) return;
      N sum = 0;
      for (std::int64_t r = 0; r < count; ++r) sum += weights[r] * to_wide(rows[r * stride + c]);
      sums[k] = sums[k] * before + sum;
    }
  }
  // Writes the sums times `factor`, or adds them to the row.
  template <class T>
  __device__ __forceinline__ void store(T* row, N factor, bool add, int size) const {
    for (int k = 0; k < kColumns; ++k) {
      const int c = static_cast<int>(threadIdx.x) + k * kThreads;
      if (c >= size) return;
      const N value = sums[k] * factor;
      row[c] = from_wide<T>(add ? to_wide(row[c]) + value : value);
    }
  }
};

__device__ __forceinline__ std::int64_t rows_left(std::int64_t left) {
  return left < kThreads ? left : kThreads;
}

template <class T>
__global__ void __launch_bounds__(kThreads) forward(AttentionOperands<T> o, bool causal) {
  using N = Wide<T>;
  Shared<N>& shared = block_shared<Shared<N>>();
  const std::int64_t problem = blockIdx.x / o.t, i = blockIdx.x % o.t, seen = causal ? i + 1 : o.t;
  const T *q = o.qkv + o.q_offset(problem) + i * o.stride, *k = o.qkv + o.k_offset(problem),
          *v = k + o.kv_width();
  const int thread = static_cast<int>(threadIdx.x);
  N top = -std::numeric_limits<N>::infinity(), sum = 0;
  Columns<N> result;
  for (std::int64_t first = 0; first < seen; first += kThreads) {
    const std::int64_t j = first + thread;
    const bool sees = j < seen;
    const N score =
        sees ? dot(q, k + j * o.stride, o.size) * o.scale : -std::numeric_limits<N>::infinity();
    const N above = larger(block_max(score, shared.partial), top), before = exp(top - above),
            p = sees ? exp(score - above) : 0;
    shared.first[thread] = sees ? p * kept(o, problem, i, j) : 0;
    sum = sum * before + block_sum(p, shared.partial);  // all threads have written their weights
    result.add(before, shared.first, v + first * o.stride, o.stride, rows_left(seen - first),
               o.size);
    top = above;
    __syncthreads();  // the weights have been read
  }
  result.store(o.y + o.y_offset(problem) + i * o.width(), 1 / sum, false, o.size);
  if (thread == 0 && o.lse != nullptr) o.lse[problem * o.t + i] = top + log(sum);
}

// Also writes the weight of the row.
template <class T>
__global__ void __launch_bounds__(kThreads) backward_queries(AttentionOperands<T> o, bool causal) {
  using N = Wide<T>;
  Shared<N>& shared = block_shared<Shared<N>>();
  const std::int64_t problem = blockIdx.x / o.t, i = blockIdx.x % o.t, seen = causal ? i + 1 : o.t,
                     y_at = o.y_offset(problem) + i * o.width();
  const T *q = o.qkv + o.q_offset(problem) + i * o.stride, *k = o.qkv + o.k_offset(problem),
          *v = k + o.kv_width(), *dy = o.dy + y_at, *y = o.y + y_at;
  const int thread = static_cast<int>(threadIdx.x);
  N own = 0;
  for (int c = thread; c < o.size; c += kThreads) own += to_wide(dy[c]) * to_wide(y[c]);
  const N weight = block_sum(own, shared.partial), lse = o.lse[problem * o.t + i];
  Columns<N> result;
  for (std::int64_t first = 0; first < seen; first += kThreads) {
    const std::int64_t j = first + thread;
    N slope = 0;
    if (j < seen) {
      const N p = exp(dot(q, k + j * o.stride, o.size) * o.scale - lse);
      slope = p * (kept(o, problem, i, j) * dot(dy, v + j * o.stride, o.size) - weight) * o.scale;
    }
    __syncthreads();  // earlier weights have been read
    shared.first[thread] = slope;
    __syncthreads();
    result.add(1, shared.first, k + first * o.stride, o.stride, rows_left(seen - first), o.size);
  }
  result.store(o.dqkv + o.q_offset(problem) + i * o.stride, 1, o.add, o.size);
  if (thread == 0) o.weights[problem * o.t + i] = weight;
}

// A block has one key of one head of keys, which `group` problems read.
template <class T>
__global__ void __launch_bounds__(kThreads) backward_keys(AttentionOperands<T> o, bool causal) {
  using N = Wide<T>;
  Shared<N>& shared = block_shared<Shared<N>>();
  const std::int64_t first_problem = blockIdx.x / o.t * o.group, j = blockIdx.x % o.t;
  const std::int64_t k_at = o.k_offset(first_problem) + j * o.stride, v_at = k_at + o.kv_width();
  const int thread = static_cast<int>(threadIdx.x);
  Columns<N> dk, dv;
  for (std::int64_t problem = first_problem; problem < first_problem + o.group; ++problem) {
    const T *q = o.qkv + o.q_offset(problem), *dy = o.dy + o.y_offset(problem);
    for (std::int64_t first = causal ? j : 0; first < o.t; first += kThreads) {
      const std::int64_t i = first + thread, row = problem * o.t + i;
      N slope = 0, factor = 0;
      if (i < o.t) {
        const N p = exp(dot(q + i * o.stride, o.qkv + k_at, o.size) * o.scale - o.lse[row]),
                keep = kept(o, problem, i, j);
        slope =
            p * (keep * dot(dy + i * o.width(), o.qkv + v_at, o.size) - o.weights[row]) * o.scale;
        factor = p * keep;
      }
      __syncthreads();  // earlier weights have been read
      shared.first[thread] = slope;
      shared.second[thread] = factor;
      __syncthreads();
      const std::int64_t count = rows_left(o.t - first);
      dk.add(1, shared.first, q + first * o.stride, o.stride, count, o.size);
      dv.add(1, shared.second, dy + first * o.width(), o.width(), count, o.size);
    }
  }
  dk.store(o.dqkv + k_at, 1, o.add, o.size);
  dv.store(o.dqkv + v_at, 1, o.add, o.size);
}

template <class T>
void start(const char* name, void (*kernel)(AttentionOperands<T>, bool), std::int64_t blocks,
           const AttentionOperands<T>& o, bool causal, void* stream) {
  launch(name, kernel, {static_cast<unsigned>(blocks)}, kThreads, sizeof(Shared<Wide<T>>), stream,
         o, causal);
}

}  // namespace

template <class T>
void start_plain_forward(const AttentionOperands<T>& o, bool causal, void* stream) {
  start("attention_forward", forward<T>, o.n * o.heads * o.t, o, causal, stream);
}

template <class T>
void start_plain_backward(const AttentionOperands<T>& o, bool causal, void* stream) {
  const std::int64_t rows = o.n * o.heads * o.t;
  start("attention_backward_queries", backward_queries<T>, rows, o, causal, stream);
  start("attention_backward_keys", backward_keys<T>, rows / o.group, o, causal, stream);
}

template void start_plain_forward(const AttentionOperands<float>&, bool, void*);
template void start_plain_forward(const AttentionOperands<bf16>&, bool, void*);
template void start_plain_forward(const AttentionOperands<f16>&, bool, void*);
template void start_plain_forward(const AttentionOperands<double>&, bool, void*);
template void start_plain_backward(const AttentionOperands<float>&, bool, void*);
template void start_plain_backward(const AttentionOperands<bf16>&, bool, void*);
template void start_plain_backward(const AttentionOperands<f16>&, bool, void*);
template void start_plain_backward(const AttentionOperands<double>&, bool, void*);

}  // namespace engine::ops::cuda
