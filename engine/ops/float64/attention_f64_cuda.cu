// A block computes one row of y and of dq, or of dk and dv: its threads compute the weights of 128
// rows of the other operand, one each, and then sum those rows, one column each. Every sum has one
// order. The softmax is an online one, so that no row of scores is stored. Bound by
// flops and by reads of rows from caches.
#include "engine/ops/float64/attention_f64_cuda.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/ops/device/device_code.h"
#include "engine/ops/device/philox_cuda.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 128;  // one for each column of a head

// The operands of the kernels.
struct Operands : AttentionF64 {
  double scale;

  explicit Operands(const AttentionF64& o)
      : AttentionF64(o), scale(1 / std::sqrt(static_cast<double>(o.size))) {}

  // The first element of a head's rows of y; of those of q, k and v in qkv.
  __device__ std::int64_t y_at(std::int64_t problem) const {
    return problem / heads * t * width + problem % heads * size;
  }
  __device__ std::int64_t q_at(std::int64_t problem) const {
    return problem / heads * t * stride + problem % heads * size;
  }
  __device__ std::int64_t k_at(std::int64_t problem) const {
    return problem / heads * t * stride + width + problem % heads / group * size;
  }
  __device__ std::int64_t v_at(std::int64_t problem) const {
    return k_at(problem) + (stride - width) / 2;
  }
  // The number of keys that query i sees.
  __device__ std::int64_t seen(std::int64_t i) const { return causal ? i + 1 : t; }
  // The factor of probability (i, j): 0 if it is dropped.
  __device__ double kept(std::int64_t problem, std::int64_t i, std::int64_t j) const {
    if (dropout.sample_ids == nullptr) return 1;
    const std::int64_t blocks = (t + 3) / 4,
                       row =
                           (dropout.sample_ids[problem / heads] * heads + problem % heads) * t + i;
    const std::uint32_t word =
        philox_words(dropout.key, dropout.epoch != nullptr ? *dropout.epoch : dropout.fixed_epoch,
                     static_cast<std::uint64_t>(row * blocks + j / 4))
            .chosen(j);
    return (word >> 8) >= dropout.threshold ? dropout.factor : 0;
  }
};

struct Shared {
  double first[kThreads], second[kThreads], partial[kThreads / kWarp];
};

__device__ __forceinline__ double dot(const double* a, const double* b, std::int64_t size) {
  double sum = 0;
  for (std::int64_t c = 0; c < size; ++c) sum += a[c] * b[c];
  return sum;
}

__device__ __forceinline__ double block_max(double value, double* partial) {
  value = warp_max(value);
  __syncthreads();  // earlier uses of `partial` are complete
  if (lane_index() == 0) partial[warp_index()] = value;
  __syncthreads();
  for (int w = 0; w < kThreads / kWarp; ++w) value = partial[w] > value ? partial[w] : value;
  return value;
}

// Returns the sum of weights[r] times column c of row r, for `count` rows.
__device__ __forceinline__ double weighted(const double* weights, const double* rows,
                                           std::int64_t stride, std::int64_t count) {
  double sum = 0;
  for (std::int64_t r = 0; r < count; ++r) sum += weights[r] * rows[r * stride];
  return sum;
}

__global__ void __launch_bounds__(kThreads) forward(Operands o) {
  Shared& shared = block_shared<Shared>();
  const std::int64_t problem = blockIdx.x / o.t, i = blockIdx.x % o.t, seen = o.seen(i);
  const double *q = o.qkv + o.q_at(problem) + i * o.stride, *k = o.qkv + o.k_at(problem),
               *v = o.qkv + o.v_at(problem);
  const int thread = static_cast<int>(threadIdx.x);
  double top = -std::numeric_limits<double>::infinity(), sum = 0, result = 0;
  for (std::int64_t first = 0; first < seen; first += kThreads) {
    const std::int64_t j = first + thread, left = seen - first;
    const bool sees = j < seen;
    const double score = sees ? dot(q, k + j * o.stride, o.size) * o.scale
                              : -std::numeric_limits<double>::infinity();
    const double above = fmax(top, block_max(score, shared.partial)), before = exp(top - above),
                 p = sees ? exp(score - above) : 0;
    shared.first[thread] = sees ? p * o.kept(problem, i, j) : 0;
    sum = sum * before + block_sum(p, shared.partial);  // all threads have written their weights
    if (thread < o.size)
      result = result * before + weighted(shared.first, v + first * o.stride + thread, o.stride,
                                          left < kThreads ? left : kThreads);
    top = above;
    __syncthreads();  // the weights have been read
  }
  if (thread < o.size) o.y[o.y_at(problem) + i * o.width + thread] = result / sum;
  if (thread == 0 && o.lse != nullptr) o.lse[problem * o.t + i] = top + log(sum);
}

__device__ __forceinline__ void put(const Operands& o, std::int64_t at, double value) {
  o.dqkv[at] = o.add ? o.dqkv[at] + value : value;
}

// Also writes the weight of the row.
__global__ void __launch_bounds__(kThreads) backward_queries(Operands o) {
  Shared& shared = block_shared<Shared>();
  const std::int64_t problem = blockIdx.x / o.t, i = blockIdx.x % o.t, seen = o.seen(i);
  const double *q = o.qkv + o.q_at(problem) + i * o.stride, *k = o.qkv + o.k_at(problem),
               *v = o.qkv + o.v_at(problem), *dy = o.dy + o.y_at(problem) + i * o.width,
               *y = o.y + o.y_at(problem) + i * o.width;
  const int thread = static_cast<int>(threadIdx.x);
  const double weight = block_sum(thread < o.size ? dy[thread] * y[thread] : 0, shared.partial),
               lse = o.lse[problem * o.t + i];
  double result = 0;
  for (std::int64_t first = 0; first < seen; first += kThreads) {
    const std::int64_t j = first + thread, left = seen - first;
    double slope = 0;
    if (j < seen) {
      const double p = exp(dot(q, k + j * o.stride, o.size) * o.scale - lse);
      slope = p * (o.kept(problem, i, j) * dot(dy, v + j * o.stride, o.size) - weight) * o.scale;
    }
    __syncthreads();  // earlier weights have been read
    shared.first[thread] = slope;
    __syncthreads();
    if (thread < o.size)
      result += weighted(shared.first, k + first * o.stride + thread, o.stride,
                         left < kThreads ? left : kThreads);
  }
  if (thread < o.size) put(o, o.q_at(problem) + i * o.stride + thread, result);
  if (thread == 0) o.weights[problem * o.t + i] = weight;
}

// A block has one key of one head of keys, which `group` problems read.
__global__ void __launch_bounds__(kThreads) backward_keys(Operands o) {
  Shared& shared = block_shared<Shared>();
  const std::int64_t first_problem = blockIdx.x / o.t * o.group, j = blockIdx.x % o.t;
  const std::int64_t k_at = o.k_at(first_problem) + j * o.stride,
                     v_at = o.v_at(first_problem) + j * o.stride;
  const int thread = static_cast<int>(threadIdx.x);
  double dk = 0, dv = 0;
  for (std::int64_t problem = first_problem; problem < first_problem + o.group; ++problem) {
    const double *q = o.qkv + o.q_at(problem), *dy = o.dy + o.y_at(problem);
    for (std::int64_t first = o.causal ? j : 0; first < o.t; first += kThreads) {
      const std::int64_t i = first + thread, left = o.t - first, row = problem * o.t + i;
      double slope = 0, kept = 0;
      if (i < o.t) {
        const double p = exp(dot(q + i * o.stride, o.qkv + k_at, o.size) * o.scale - o.lse[row]);
        const double keep = o.kept(problem, i, j);
        slope = p * (keep * dot(dy + i * o.width, o.qkv + v_at, o.size) - o.weights[row]) * o.scale;
        kept = p * keep;
      }
      __syncthreads();  // earlier weights have been read
      shared.first[thread] = slope;
      shared.second[thread] = kept;
      __syncthreads();
      if (thread >= o.size) continue;
      const std::int64_t count = left < kThreads ? left : kThreads;
      dk += weighted(shared.first, q + first * o.stride + thread, o.stride, count);
      dv += weighted(shared.second, dy + first * o.width + thread, o.width, count);
    }
  }
  if (thread >= o.size) return;
  put(o, k_at + thread, dk);
  put(o, v_at + thread, dv);
}

void start(KernelContext& context, const char* name, void (*kernel)(Operands), std::int64_t blocks,
           const Operands& o) {
  launch(name, kernel, {static_cast<unsigned>(blocks)}, kThreads, sizeof(Shared), context.stream,
         o);
}

}  // namespace

void attention_forward_f64(KernelContext& context, const AttentionF64& o) {
  start(context, "attention_forward", forward, o.n * o.heads * o.t, Operands(o));
}

void attention_backward_f64(KernelContext& context, const AttentionF64& o) {
  const std::int64_t rows = o.n * o.heads * o.t;
  start(context, "attention_backward_queries", backward_queries, rows, Operands(o));
  start(context, "attention_backward_keys", backward_keys, rows / o.group, Operands(o));
}

}  // namespace engine::ops::cuda
