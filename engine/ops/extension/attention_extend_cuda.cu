// A block computes one row of one head of y. Its warps process groups of four keys, interleaved:
// a lane has every 32nd column, so that rows are read in whole lines, and each warp has an online
// softmax of its own. The block combines these in the order of the warps, so that the order of all
// sums depends on the number of keys only. Keys and values of the call's own positions are read
// from qkv, so that one launch both keeps and reads them.
//
// Texts that begin are computed by the kernels of whole samples, which process many rows at a time.
#include "engine/ops/extension/attention_extend_cuda.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/ops/attention/attention_cuda.h"
#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kKeys = 4;                // that a warp processes at a time
constexpr std::int64_t kMaxTexts = 64;  // per launch: the counts of each are parameters

template <class T>
struct ExtendOperands {
  const T* qkv;
  T *kept, *y;
  std::int64_t t, capacity, stride;  // stride: between the rows of qkv
  int heads, kv_heads, size;
  Wide<T> scale;  // 1 / sqrt(size)
  std::int64_t earlier[kMaxTexts];
};

// The keys or the values that a head of queries reads: the kept rows, then those of the call.
template <class T>
struct HeadRows {
  T* kept;
  const T* next;
  std::int64_t earlier, stride;
  int size;

  __device__ __forceinline__ const T* row(std::int64_t j) const {
    return j < earlier ? kept + j * size : next + (j - earlier) * stride;
  }
  // Copies the call's row i to the kept ones.
  __device__ __forceinline__ void keep(std::int64_t i) const {
    for (int c = static_cast<int>(threadIdx.x); c < size; c += kThreads)
      kept[(earlier + i) * size + c] = next[i * stride + c];
  }
};

// `head`: of the keys and then the values of a text.
template <class T>
__device__ __forceinline__ HeadRows<T> rows_of(const ExtendOperands<T>& o, std::int64_t text,
                                               int head) {
  return {o.kept + (text * 2 * o.kv_heads + head) * o.capacity * o.size,
          o.qkv + text * o.t * o.stride + (o.heads + head) * o.size, o.earlier[text], o.stride,
          o.size};
}

// Reads the lane's columns of a row; those beyond its end are 0.
template <int kColumns, class T>
__device__ __forceinline__ void load_columns(const T* row, int size, Wide<T> (&to)[kColumns]) {
  ENGINE_UNROLL
  for (int k = 0; k < kColumns; ++k) {
    const int c = lane_index() + k * kWarp;
    to[k] = c < size ? to_wide(row[c]) : 0;
  }
}

// The softmax of a warp's keys, and the lane's columns of the sum of values that it weighs.
template <class N, int kColumns>
struct WarpRow {
  N top = -std::numeric_limits<N>::infinity(), sum = 0, columns[kColumns] = {};

  // Adds the keys from `first` on, of `seen` keys in all.
  template <class T>
  __device__ __forceinline__ void add(const N (&query)[kColumns], const HeadRows<T>& keys,
                                      const HeadRows<T>& values, std::int64_t first,
                                      std::int64_t seen, N scale) {
    N scores[kKeys], row[kColumns], above = top;
    ENGINE_UNROLL
    for (int u = 0; u < kKeys; ++u) {
      const bool sees = first + u < seen;
      load_columns(keys.row(sees ? first + u : seen - 1), keys.size, row);
      N product = 0;
      ENGINE_UNROLL
      for (int k = 0; k < kColumns; ++k) product += query[k] * row[k];
      product = warp_sum(product) * scale;
      scores[u] = sees ? product : -std::numeric_limits<N>::infinity();
      above = fmax(above, scores[u]);
    }
    const N before = exp(top - above);
    sum *= before;
    ENGINE_UNROLL
    for (int k = 0; k < kColumns; ++k) columns[k] *= before;
    ENGINE_UNROLL
    for (int u = 0; u < kKeys; ++u) {
      if (first + u >= seen) break;
      load_columns(values.row(first + u), values.size, row);
      const N weight = exp(scores[u] - above);
      sum += weight;
      ENGINE_UNROLL
      for (int k = 0; k < kColumns; ++k) columns[k] += weight * row[k];
    }
    top = above;
  }
};

template <class N, int kColumns>
struct Shared {
  N tops[kWarps], sums[kWarps], columns[kWarps][kColumns * kWarp];
};

// Writes the row that the warps' parts make. A warp without keys has the weight 0.
template <class T, int kColumns>
__device__ __forceinline__ void combine(const Shared<Wide<T>, kColumns>& shared, int size, T* y) {
  using N = Wide<T>;
  N top = shared.tops[0], sum = 0, weights[kWarps];
  for (int w = 1; w < kWarps; ++w) top = fmax(top, shared.tops[w]);
  for (int w = 0; w < kWarps; ++w) {
    weights[w] = exp(shared.tops[w] - top);
    sum += weights[w] * shared.sums[w];
  }
  for (int c = static_cast<int>(threadIdx.x); c < size; c += kThreads) {
    N value = 0;
    for (int w = 0; w < kWarps; ++w) value += weights[w] * shared.columns[w][c];
    y[c] = from_wide<T>(value / sum);
  }
}

template <class T, int kColumns>
__global__ void __launch_bounds__(kThreads) extend(ExtendOperands<T> o) {
  using N = Wide<T>;
  Shared<N, kColumns>& shared = block_shared<Shared<N, kColumns>>();
  const std::int64_t block = blockIdx.x, row = block / o.heads, text = row / o.t,
                     i = row - text * o.t;
  const int head = static_cast<int>(block - row * o.heads), group = o.heads / o.kv_heads,
            warp = warp_index();
  const HeadRows<T> keys = rows_of(o, text, head / group),
                    values = rows_of(o, text, o.kv_heads + head / group);
  if (head % group == 0) {  // no block of this launch reads these rows
    keys.keep(i);
    values.keep(i);
  }
  N query[kColumns];
  load_columns(o.qkv + row * o.stride + head * o.size, o.size, query);
  const std::int64_t seen = keys.earlier + i + 1;
  WarpRow<N, kColumns> part;
  for (std::int64_t first = warp * kKeys; first < seen; first += kWarps * kKeys)
    part.add(query, keys, values, first, seen, o.scale);
  if (lane_index() == 0) {
    shared.tops[warp] = part.top;
    shared.sums[warp] = part.sum;
  }
  ENGINE_UNROLL
  for (int k = 0; k < kColumns; ++k)
    shared.columns[warp][lane_index() + k * kWarp] = part.columns[k];
  __syncthreads();
  combine<T, kColumns>(shared, o.size, o.y + block * o.size);
}

// Copies the keys and values of texts that begin: one thread per element.
template <class T>
__global__ void __launch_bounds__(kThreads) keep_rows(ExtendOperands<T> o, std::int64_t count) {
  const std::int64_t width = std::int64_t{2} * o.kv_heads * o.size;
  for (std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; at < count;
       at += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t row = quotient(at, width), text = quotient(row, o.t), i = row - text * o.t,
                       column = at - row * width, head = quotient(column, o.size),
                       c = column - head * o.size;
    o.kept[((text * 2 * o.kv_heads + head) * o.capacity + i) * o.size + c] =
        o.qkv[row * o.stride + std::int64_t{o.heads} * o.size + column];
  }
}

// Calls call(std::integral_constant<int, K>): a lane has K columns. Always the largest number for
// float64, which needs few kernels more than fast ones.
template <class T, class Call>
void with_columns(std::int64_t size, Call call) {
  constexpr int kMost = static_cast<int>(kMaxHeadSize / kWarp);
  if constexpr (!std::is_same_v<T, double>) {
    if (size <= 2 * kWarp) return call(std::integral_constant<int, 2>{});
    if (size <= 4 * kWarp) return call(std::integral_constant<int, 4>{});
  }
  call(std::integral_constant<int, kMost>{});
}

template <class T>
ExtendOperands<T> operands_of(const CausalAttentionExtend& from) {
  ExtendOperands<T> o{};
  o.qkv = from.qkv.as<T>();
  o.kept = from.kept.as<T>();
  o.y = from.y.as<T>();
  o.t = from.qkv.shape[1];
  o.capacity = from.kept.shape[2];
  o.stride = from.qkv.shape[2];
  o.heads = static_cast<int>(from.heads);
  o.kv_heads = static_cast<int>(from.kv_heads);
  o.size = static_cast<int>(from.kept.shape[3]);
  o.scale = static_cast<Wide<T>>(1 / std::sqrt(static_cast<double>(o.size)));
  return o;
}

// Extends the texts, some in each launch.
template <class T>
void start_extend(KernelContext& context, const CausalAttentionExtend& from) {
  ExtendOperands<T> o = operands_of<T>(from);
  const std::int64_t n = from.qkv.shape[0],
                     kept_per_text = std::int64_t{2} * o.kv_heads * o.capacity * o.size,
                     rows_per_text = o.t * o.heads;
  for (std::int64_t first = 0; first < n; first += kMaxTexts) {
    const std::int64_t texts = std::min(kMaxTexts, n - first);
    std::copy_n(from.earlier.begin() + first, texts, o.earlier);
    with_columns<T>(o.size, [&]<int K>(std::integral_constant<int, K>) {
      launch("attention_extend", extend<T, K>, {static_cast<unsigned>(texts * rows_per_text)},
             kThreads, sizeof(Shared<Wide<T>, K>), context.stream, o);
    });
    o.qkv += texts * o.t * o.stride;
    o.kept += texts * kept_per_text;
    o.y += texts * rows_per_text * o.size;
  }
}

template <class T>
void start_keep(KernelContext& context, const CausalAttentionExtend& from) {
  const ExtendOperands<T> o = operands_of<T>(from);
  const std::int64_t count = from.qkv.shape[0] * o.t * 2 * o.kv_heads * o.size;
  launch("attention_keep", keep_rows<T>, {loop_blocks(count, kThreads)}, kThreads, 0,
         context.stream, o, count);
}

}  // namespace

void causal_attention_extend(KernelContext& context, const CausalAttentionExtend& o) {
  if (o.qkv.count() == 0) return;
  const bool begin = o.qkv.shape[1] > 1 && std::ranges::count(o.earlier, 0) == o.qkv.shape[0];
  if (begin)
    attention_forward(context, {.qkv = o.qkv, .heads = o.heads, .kv_heads = o.kv_heads, .y = o.y});
  with_any_storage(o.qkv.dtype, [&]<class T>(T) {
    begin ? start_keep<T>(context, o) : start_extend<T>(context, o);
  });
}

}  // namespace engine::ops::cuda
