// Forward of attention by FlashAttention-2 (Dao, 2023) on tensor cores. A block keeps 64 queries,
// 16 per warp, and processes the keys and values in chunks; asynchronous copies (16-bit storage)
// load the next chunk while the current one is processed. Scores and probabilities stay in
// registers. Bound by flops of the tensor cores and by the exponentials.
#include "engine/ops/attention/attention_dropout.h"
#include "engine/ops/attention/attention_tiles.h"

namespace engine::ops::cuda {
namespace {

template <class M, int kSize>
struct Shared {
  using Tile = MmaTile<M, kSize>;
  alignas(16) M q[Tile::kOwnElements], k[2][Tile::kOtherElements], v[2][Tile::kOtherElements];
};

// The running maximum and sum of a lane's two rows.
struct RunningRows {
  float top[2], sum[2];  // sum: only over this lane's columns
};

// One step of the online softmax: a block of scores becomes exp(score - running maximum), and the
// running maximum and sum of each row are updated. A larger maximum makes all previous sums too
// large by the same factor: the caller multiplies its output sums by `shrink`.
template <bool kCausal, int kTiles>
__device__ __forceinline__ void online_softmax_step(float (&scores)[kTiles][4], std::int64_t i,
                                                    std::int64_t j, std::int64_t t, float scale,
                                                    RunningRows& rows, float (&shrink)[2]) {
  const int lane = lane_index();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = i + lane / 4 + 8 * half,
                       last =
                           kCausal && row < t - 1 ? row : t - 1;  // rows from t on are not stored
    const int seen =
        last - j < 8 * kTiles ? static_cast<int>(last - j) : 8 * kTiles;  // the last column seen
    float top = rows.top[half];
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        float& s = scores[n][2 * half + side];
        s = 8 * n + lane % 4 * 2 + side <= seen ? s * scale : -INFINITY;
        top = s > top ? s : top;
      }
    for (int mask = 1; mask < 4; mask *= 2) {
      const float other = shuffle_xor(top, mask);
      top = other > top ? other : top;
    }
    shrink[half] = __expf(rows.top[half] - top);
    rows.top[half] = top;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        float& s = scores[n][2 * half + side];
        s = __expf(s - top);
        sum += s;
      }
    rows.sum[half] = rows.sum[half] * shrink[half] + sum;
  }
}

// The factors of the two rows of a thread, whose first one is `first`; writes their log-sum-exp.
template <class T>
__device__ __forceinline__ void finish_rows(const AttentionOperands<T>& o, std::int64_t problem,
                                            std::int64_t first, const RunningRows& rows,
                                            float (&inverse)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = rows.sum[half];
    for (int mask = 1; mask < 4; mask *= 2) sum += shuffle_xor(sum, mask);
    inverse[half] = 1 / sum;
    const std::int64_t row = first + 8 * half;
    if (o.lse != nullptr && row < o.t && lane_index() % 4 == 0)
      o.lse[problem * o.t + row] = rows.top[half] + logf(sum);
  }
}

template <class T, class M, int kSize, bool kCausal>
__global__ void __launch_bounds__(kMmaThreads) mma_forward(AttentionOperands<T> o, int blocks) {
  using Tile = MmaTile<M, kSize>;
  auto& shared = block_shared<Shared<M, kSize>>();
  const std::int64_t problem = blockIdx.x / blocks;
  const std::int64_t query =
      std::int64_t{blocks - 1 - static_cast<int>(blockIdx.x % blocks)} * kOwn;  // the longest first
  const std::int64_t mine = query + warp_index() * 16, stride = o.stride;
  const T *q = o.qkv + o.q_offset(problem), *k = o.qkv + o.k_offset(problem), *v = k + o.kv_width();
  const ProblemDropout dropout(o, problem);
  const auto fetch = [&](std::int64_t first, int stage) {
    fetch_rows<M, kSize>(k + first * stride, stride, Tile::kOther, o.t - first, shared.k[stage]);
    fetch_rows<M, kSize>(v + first * stride, stride, Tile::kOther, o.t - first, shared.v[stage]);
  };
  fetch_rows<M, kSize>(q + query * stride, stride, kOwn, o.t - query, shared.q);
  fetch(0, 0);
  commit_copies();

  RunningRows rows{{-INFINITY, -INFINITY}, {0, 0}};
  float y[kSize / 8][4] = {};
  const std::int64_t end = kCausal && query + kOwn < o.t ? query + kOwn : o.t;
  int stage = 0;
  for (std::int64_t first = 0; first < end; first += Tile::kOther, stage ^= 1) {
    if (first + Tile::kOther < end) fetch(first + Tile::kOther, stage ^ 1);
    commit_copies();
    wait_copies<1>();  // all except those of the next chunk, which does not exist for the last one
    __syncthreads();
    if (!kCausal || first <= mine + 15) {  // otherwise no row of the warp sees the chunk
      float scores[Tile::kOther / 8][4], shrink[2];
      multiply_tiles<M, kSize>(shared.q + warp_index() * 16 * Tile::kStride, shared.k[stage],
                               scores);
      online_softmax_step<kCausal>(scores, mine, first, o.t, o.scale, rows, shrink);
      if (dropout.active) {
#pragma unroll
        for (int n = 0; n < Tile::kOther / 8; ++n) {
          float factors[4];
          draw_by_queries(dropout, mine, first + 8 * n, factors);
#pragma unroll
          for (int i = 0; i < 4; ++i) scores[n][i] *= factors[i];
        }
      }
#pragma unroll
      for (int n = 0; n < kSize / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) y[n][i] *= shrink[i / 2];
      add_tiles<M, kSize>(scores, shared.v[stage], y);
    }
    __syncthreads();
  }

  float inverse[2];
  finish_rows(o, problem, mine + lane_index() / 4, rows, inverse);
  store_tiles<kSize>(y, inverse, mine, o.t, o.width(), false, o.y + o.y_offset(problem));
}

}  // namespace

template <class T>
void start_mma_forward(const AttentionOperands<T>& operands, bool causal, Products products,
                       void* stream) {
  with_mma_tile<T>(
      products, operands.size, [&]<class M, int kSize>(M, std::integral_constant<int, kSize>) {
        const std::int64_t blocks = divide_up(operands.t, kOwn);
        with_mask(causal, [&](auto mask) {
          launch("attention_mma_forward", mma_forward<T, M, kSize, mask()>,
                 {static_cast<unsigned>(operands.n * operands.heads * blocks)}, kMmaThreads,
                 sizeof(Shared<M, kSize>), stream, operands, static_cast<int>(blocks));
        });
      });
}

template void start_mma_forward(const AttentionOperands<float>&, bool, Products, void*);
template void start_mma_forward(const AttentionOperands<bf16>&, bool, Products, void*);
template void start_mma_forward(const AttentionOperands<f16>&, bool, Products, void*);

}  // namespace engine::ops::cuda
