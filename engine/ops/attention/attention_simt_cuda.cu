// Attention by FlashAttention-2 (Dao, 2023) in float32 arithmetic, for head sizes up to 128, which
// are padded with zeros to 32, 64 or 128. A warp keeps 8 rows of queries (for dK and dV: of keys)
// and processes 32 rows of the other operand at a time, one per lane. The 8 x 32 weights then pass
// through shared memory and multiply those rows, now one column per lane. dQ, and dK with dV, are
// two kernels, so that every sum has one owner and one order. Bound by flops of the float32 units
// and by reads of shared memory.
//
// The idea of FlashAttention: softmax(Q K^T) V needs a row's maximum and sum for the normalization,
// but they need not be known in advance. Keys are processed in chunks; when a chunk raises the
// maximum from m to m', all sums so far are multiplied by exp(m - m'). So the t x t matrix of
// scores is never stored, and memory grows with t instead of t squared. Backward recomputes the
// probabilities from q, k and the stored log-sum-exp of each row, which is cheaper than reading
// them.
#include "engine/ops/attention/attention_dropout.h"
#include "engine/ops/device/float_access.h"

namespace engine::ops::cuda {
namespace {

constexpr int kRows = 8;    // rows of a warp
constexpr int kOther = 32;  // rows of the other operand at a time, one per lane
constexpr int kForwardWarps = 8, kBackwardWarps = 4;  // a quarter where these do not fit

template <int kSize>
struct Tile {
  static constexpr int kStride =
      kSize + 4;  // no bank conflicts if 8 lanes read 16 bytes of one column
  static constexpr int kColumns = kSize / kWarp;
};

// Loads rows [0, rows) of `size` elements as floats; zeros beyond `valid` rows and `size` columns.
template <int kSize, bool kVector, class T>
__device__ __forceinline__ void load_tile(const T* from, std::int64_t stride, int rows,
                                          std::int64_t valid, int size, float* to) {
  constexpr int kEach = kVector ? 4 : 1;
  for (int i = static_cast<int>(threadIdx.x) * kEach; i < rows * kSize;
       i += static_cast<int>(blockDim.x) * kEach) {
    const int r = i / kSize, c = i % kSize;
    float value[kEach] = {};
    if (r < valid && c < size) load_floats<kEach>(from + r * stride + c, value);
    store_floats<kEach>(to + r * Tile<kSize>::kStride + c, value);
  }
}

// products[r] = mine[r] . others[lane]
template <int kSize>
__device__ __forceinline__ void multiply_rows(const float* mine, const float* others,
                                              float (&products)[kRows]) {
  const float* other = others + lane_index() * Tile<kSize>::kStride;
#pragma unroll
  for (int r = 0; r < kRows; ++r) products[r] = 0;
#pragma unroll 2
  for (int c = 0; c < kSize; c += 4) {
    const Packed<float> b = load_packed(other + c);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Packed<float> a = load_packed(mine + r * Tile<kSize>::kStride + c);
      products[r] += a.at[0] * b.at[0] + a.at[1] * b.at[1] + a.at[2] * b.at[2] + a.at[3] * b.at[3];
    }
  }
}

// sums[r][j] += sum over k of weights[r][k] * others[k][lane + 32 j]
template <int kSize>
__device__ __forceinline__ void add_rows(const float* weights, const float* others,
                                         float (&sums)[kRows][Tile<kSize>::kColumns]) {
#pragma unroll 2
  for (int k = 0; k < kOther; k += 4) {
    Packed<float> w[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) w[r] = load_packed(weights + r * kOther + k);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < Tile<kSize>::kColumns; ++j) {
        const float other = others[(k + i) * Tile<kSize>::kStride + j * kWarp + lane_index()];
#pragma unroll
        for (int r = 0; r < kRows; ++r) sums[r][j] += w[r].at[i] * other;
      }
  }
}

// Stores row r of the sums, times `factor`, at `to`.
template <int kSize, class T>
__device__ __forceinline__ void store_row(const float (&sums)[Tile<kSize>::kColumns], float factor,
                                          int size, bool add, T* to) {
#pragma unroll
  for (int j = 0; j < Tile<kSize>::kColumns; ++j) {
    const int c = j * kWarp + lane_index();
    if (c < size)
      to[c] = from_float<T>(add ? to_float(to[c]) + sums[j] * factor : sums[j] * factor);
  }
}

template <int kSize, int kWarps>
struct ForwardShared {
  alignas(16) float q[kWarps * kRows * Tile<kSize>::kStride];
  alignas(16) float k[kOther * Tile<kSize>::kStride], v[kOther * Tile<kSize>::kStride];
  alignas(16) float weights[kWarps][kRows * kOther];
};

template <class T, int kSize, int kWarps, bool kVector, bool kCausal>
__global__ void __launch_bounds__(kWarps* kWarp) forward(AttentionOperands<T> o, int blocks) {
  auto& shared = block_shared<ForwardShared<kSize, kWarps>>();
  constexpr int kQueries = kWarps * kRows;
  const std::int64_t problem = blockIdx.x / blocks;
  const std::int64_t query = std::int64_t{blocks - 1 - static_cast<int>(blockIdx.x % blocks)} *
                             kQueries;  // the longest first
  const T *q = o.qkv + o.q_offset(problem), *keys = o.qkv + o.k_offset(problem);
  const int w = warp_index(), lane = lane_index();
  const ProblemDropout dropout(o, problem);
  float top[kRows], sum[kRows], y[kRows][Tile<kSize>::kColumns];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    top[r] = -INFINITY, sum[r] = 0;
#pragma unroll
    for (int j = 0; j < Tile<kSize>::kColumns; ++j) y[r][j] = 0;
  }
  load_tile<kSize, kVector>(q + query * o.stride, o.stride, kQueries, o.t - query, o.size,
                            shared.q);
  const std::int64_t end = kCausal && query + kQueries < o.t ? query + kQueries : o.t;
  for (std::int64_t first = 0; first < end; first += kOther) {
    __syncthreads();
    const T* k = keys + first * o.stride;
    load_tile<kSize, kVector>(k, o.stride, kOther, o.t - first, o.size, shared.k);
    load_tile<kSize, kVector>(k + o.kv_width(), o.stride, kOther, o.t - first, o.size, shared.v);
    __syncthreads();
    float score[kRows];
    multiply_rows<kSize>(shared.q + w * kRows * Tile<kSize>::kStride, shared.k, score);
    const std::int64_t j = first + lane;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t i =
          query + w * kRows + r;  // rows from t on see keys as well, but are not stored
      const bool seen = (!kCausal || j <= i) && j < o.t;
      const float s = seen ? score[r] * o.scale : -INFINITY, chunk_top = warp_max(s);
      const float new_top = chunk_top > top[r] ? chunk_top : top[r],
                  shrink = expf(top[r] - new_top);
      float p = seen ? expf(s - new_top) : 0.0f;
      top[r] = new_top;
      sum[r] = sum[r] * shrink + p;
      if (dropout.active && seen) p *= dropout.kept(dropout.words(i, j).chosen(j));
      shared.weights[w][r * kOther + lane] = p;
#pragma unroll
      for (int c = 0; c < Tile<kSize>::kColumns; ++c) y[r][c] *= shrink;
    }
    __syncwarp();
    add_rows<kSize>(shared.weights[w], shared.v, y);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t i = query + w * kRows + r;
    const float total = warp_sum(sum[r]);
    if (i >= o.t) continue;
    store_row<kSize>(y[r], 1 / total, o.size, false, o.y + o.y_offset(problem) + i * o.width());
    if (o.lse != nullptr && lane == 0) o.lse[problem * o.t + i] = top[r] + logf(total);
  }
}

template <int kSize, int kWarps>
struct BackwardShared {
  static constexpr int kOwn = kWarps * kRows;
  alignas(16) float own[2][kOwn * Tile<kSize>::kStride], other[2][kOther * Tile<kSize>::kStride];
  alignas(16) float weights[kWarps][2][kRows * kOther];
};

// A probability after dropout, and the gradient of its score; the gradient includes the factor
// 1 / sqrt(size).
struct Slope {
  float kept_probability, score;
};
// The inputs of a Slope: the products q k and dy v, and the two values of the query.
struct Score {
  float product, slope, lse, weight;
};
__device__ __forceinline__ Slope slope_of(const ProblemDropout& dropout, std::int64_t i,
                                          std::int64_t j, const Score& s, float scale) {
  const float p = expf(s.product * scale - s.lse);
  const float keep = dropout.active ? dropout.kept(dropout.words(i, j).chosen(j)) : 1.0f;
  return {p * keep, p * (keep * s.slope - s.weight) * scale};
}

template <class T, int kSize, int kWarps, bool kVector, bool kCausal>
__global__ void __launch_bounds__(kWarps* kWarp)
    backward_queries(AttentionOperands<T> o, int blocks) {
  using Shared = BackwardShared<kSize, kWarps>;
  auto& shared = block_shared<Shared>();
  const std::int64_t problem = blockIdx.x / blocks;
  const std::int64_t query =
      std::int64_t{blocks - 1 - static_cast<int>(blockIdx.x % blocks)} * Shared::kOwn;
  const T *q = o.qkv + o.q_offset(problem), *keys = o.qkv + o.k_offset(problem);
  const int w = warp_index(), lane = lane_index(), own = w * kRows * Tile<kSize>::kStride;
  const ProblemDropout dropout(o, problem);
  float dq[kRows][Tile<kSize>::kColumns] = {}, lse[kRows], weight[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t i = query + w * kRows + r;
    lse[r] = i < o.t ? o.lse[problem * o.t + i] : 0;
    weight[r] = i < o.t ? o.weights[problem * o.t + i] : 0;
  }
  load_tile<kSize, kVector>(q + query * o.stride, o.stride, Shared::kOwn, o.t - query, o.size,
                            shared.own[0]);
  load_tile<kSize, kVector>(o.dy + o.y_offset(problem) + query * o.width(), o.width(), Shared::kOwn,
                            o.t - query, o.size, shared.own[1]);
  const std::int64_t end = kCausal && query + Shared::kOwn < o.t ? query + Shared::kOwn : o.t;
  for (std::int64_t first = 0; first < end; first += kOther) {
    __syncthreads();
    const T* k = keys + first * o.stride;
    load_tile<kSize, kVector>(k, o.stride, kOther, o.t - first, o.size, shared.other[0]);
    load_tile<kSize, kVector>(k + o.kv_width(), o.stride, kOther, o.t - first, o.size,
                              shared.other[1]);
    __syncthreads();
    float product[kRows], slope[kRows];
    multiply_rows<kSize>(shared.own[0] + own, shared.other[0], product);
    multiply_rows<kSize>(shared.own[1] + own, shared.other[1], slope);
    const std::int64_t j = first + lane;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t i = query + w * kRows + r;
      const bool seen = (kCausal ? j <= i : j < o.t) && i < o.t;
      shared.weights[w][0][r * kOther + lane] =
          seen ? slope_of(dropout, i, j, {product[r], slope[r], lse[r], weight[r]}, o.scale).score
               : 0.0f;
    }
    __syncwarp();
    add_rows<kSize>(shared.weights[w][0], shared.other[0], dq);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t i = query + w * kRows + r;
    if (i < o.t)
      store_row<kSize>(dq[r], 1, o.size, o.add, o.dqkv + o.q_offset(problem) + i * o.stride);
  }
}

// kGroups: several heads read the keys; false spares their loop its registers.
template <class T, int kSize, int kWarps, bool kVector, bool kCausal, bool kGroups>
__global__ void __launch_bounds__(kWarps* kWarp) backward_keys(AttentionOperands<T> o, int blocks) {
  using Shared = BackwardShared<kSize, kWarps>;
  auto& shared = block_shared<Shared>();
  const int group = kGroups ? o.group : 1;
  const std::int64_t shared_by = blockIdx.x / blocks * group,  // the first problem of the group
      key = std::int64_t{static_cast<int>(blockIdx.x % blocks)} * Shared::kOwn;
  const T* k = o.qkv + o.k_offset(shared_by) + key * o.stride;
  const int w = warp_index(), lane = lane_index(), own = w * kRows * Tile<kSize>::kStride;
  float dk[kRows][Tile<kSize>::kColumns] = {}, dv[kRows][Tile<kSize>::kColumns] = {};
  load_tile<kSize, kVector>(k, o.stride, Shared::kOwn, o.t - key, o.size, shared.own[0]);
  load_tile<kSize, kVector>(k + o.kv_width(), o.stride, Shared::kOwn, o.t - key, o.size,
                            shared.own[1]);
#pragma unroll 1
  for (std::int64_t problem = shared_by; problem < shared_by + group; ++problem) {
    const T *q = o.qkv + o.q_offset(problem), *dy = o.dy + o.y_offset(problem);
    const ProblemDropout dropout(o, problem);
    for (std::int64_t first = kCausal ? key : 0; first < o.t; first += kOther) {
      __syncthreads();
      load_tile<kSize, kVector>(q + first * o.stride, o.stride, kOther, o.t - first, o.size,
                                shared.other[0]);
      load_tile<kSize, kVector>(dy + first * o.width(), o.width(), kOther, o.t - first, o.size,
                                shared.other[1]);
      __syncthreads();
      float product[kRows], slope[kRows];
      multiply_rows<kSize>(shared.own[0] + own, shared.other[0], product);
      multiply_rows<kSize>(shared.own[1] + own, shared.other[1], slope);
      const std::int64_t i = first + lane;
      const float lse = i < o.t ? o.lse[problem * o.t + i] : 0,
                  weight = i < o.t ? o.weights[problem * o.t + i] : 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t j = key + w * kRows + r;
        Slope s{0, 0};
        if ((!kCausal || j <= i) && i < o.t)
          s = slope_of(dropout, i, j, {product[r], slope[r], lse, weight}, o.scale);
        shared.weights[w][0][r * kOther + lane] = s.score;
        shared.weights[w][1][r * kOther + lane] = s.kept_probability;
      }
      __syncwarp();
      add_rows<kSize>(shared.weights[w][0], shared.other[0], dk);
      add_rows<kSize>(shared.weights[w][1], shared.other[1], dv);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t j = key + w * kRows + r;
    if (j >= o.t) continue;
    T* to = o.dqkv + o.k_offset(shared_by) + j * o.stride;
    store_row<kSize>(dk[r], 1, o.size, o.add, to);
    store_row<kSize>(dv[r], 1, o.size, o.add, to + o.kv_width());
  }
}

template <class T>
bool rows_take_vectors(const AttentionOperands<T>& o) {
  const auto fits = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % (4 * sizeof(T)) == 0;
  };
  return o.size % 4 == 0 && fits(o.qkv) && fits(o.dy);
}

// start(size, warps, vectors): `Shared` is a block's shared memory, for a size and a number of
// warps.
template <template <int, int> class Shared, int kAllWarps, class Start>
void with_tile(int size, bool vectors, Start start) {
  const auto sized = [&](auto tile, auto warps) {
    vectors ? start(tile, warps, std::true_type{}) : start(tile, warps, std::false_type{});
  };
  constexpr std::integral_constant<int, kAllWarps> all;
  if (size <= 32) return sized(std::integral_constant<int, 32>{}, all);
  if (size <= 64) return sized(std::integral_constant<int, 64>{}, all);
  constexpr std::integral_constant<int, 128> largest;
  if (sizeof(Shared<128, kAllWarps>) <= engine::cuda::max_shared_bytes())
    return sized(largest, all);
  sized(largest, std::integral_constant<int, kAllWarps / 4>{});
}

template <class T>
void launch_blocks(const char* name, void (*kernel)(AttentionOperands<T>, int),
                   const AttentionOperands<T>& o, std::int64_t problems, int warps,
                   std::size_t shared, void* stream) {
  const std::int64_t blocks = divide_up(o.t, warps * kRows);
  launch(name, kernel, {static_cast<unsigned>(problems * blocks)}, warps * kWarp, shared, stream, o,
         static_cast<int>(blocks));
}

}  // namespace

template <class T>
void start_simt_forward(const AttentionOperands<T>& operands, bool causal, void* stream) {
  with_tile<ForwardShared, kForwardWarps>(
      operands.size, rows_take_vectors(operands), [&](auto size, auto warps, auto vectors) {
        with_mask(causal, [&](auto mask) {
          launch_blocks("attention_forward", forward<T, size(), warps(), vectors(), mask()>,
                        operands, operands.n * operands.heads, warps,
                        sizeof(ForwardShared<size(), warps()>), stream);
        });
      });
}

template <class T>
void start_simt_backward(const AttentionOperands<T>& operands, bool causal, void* stream) {
  with_tile<BackwardShared, kBackwardWarps>(
      operands.size, rows_take_vectors(operands), [&](auto size, auto warps, auto vectors) {
        constexpr std::size_t kShared = sizeof(BackwardShared<size(), warps()>);
        with_mask(causal, [&](auto mask) {
          launch_blocks("attention_backward_queries",
                        backward_queries<T, size(), warps(), vectors(), mask()>, operands,
                        operands.n * operands.heads, warps, kShared, stream);
          launch_blocks(
              "attention_backward_keys",
              operands.group > 1 ? backward_keys<T, size(), warps(), vectors(), mask(), true>
                                 : backward_keys<T, size(), warps(), vectors(), mask(), false>,
              operands, operands.n * (operands.heads / operands.group), warps, kShared, stream);
        });
      });
}

template void start_simt_forward(const AttentionOperands<float>&, bool, void*);
template void start_simt_forward(const AttentionOperands<bf16>&, bool, void*);
template void start_simt_forward(const AttentionOperands<f16>&, bool, void*);
template void start_simt_backward(const AttentionOperands<float>&, bool, void*);
template void start_simt_backward(const AttentionOperands<bf16>&, bool, void*);
template void start_simt_backward(const AttentionOperands<f16>&, bool, void*);

}  // namespace engine::ops::cuda
