// Backward of attention by FlashAttention-2 (Dao, 2023) on tensor cores. It recomputes the
// probabilities from the scores and the log-sum-exp. A block keeps 64 queries for dQ, and in a
// second kernel 64 keys for dK and dV, so that every sum has one owner and one order; the
// probabilities are therefore computed twice. The second one processes the queries of one head
// after those of another if several heads read its keys. The next chunk of the other operand is
// loaded while the current one is processed. Bound by flops of the tensor cores and by the
// exponentials.
#include "engine/ops/attention/attention_dropout.h"
#include "engine/ops/attention/attention_tiles.h"

namespace engine::ops::cuda {
namespace {

template <class M, int kSize>
struct Shared {
  using Tile = MmaTile<M, kSize>;
  alignas(16) M own[2][Tile::kOwnElements],
      other[2][2][Tile::kOtherElements];  // indexed by stage, then by kind
};

// Turns `score`, a product of a query and a key, into the kept probability, and `slope`, a product
// of the gradient of y and a value, into the gradient of the scaled score.
__device__ __forceinline__ void pull_back(bool seen, float scale, float lse, float weight,
                                          float factor, float& score, float& slope) {
  const float p = seen ? __expf(fmaf(score, scale, -lse)) : 0.0f;
  score = p * factor;
  slope = p * (factor * slope - weight);
}

template <class T, class M, int kSize, bool kCausal>
__global__ void __launch_bounds__(kMmaThreads)
    mma_backward_queries(AttentionOperands<T> o, int blocks) {
  using Tile = MmaTile<M, kSize>;
  auto& shared = block_shared<Shared<M, kSize>>();
  const std::int64_t problem = blockIdx.x / blocks;
  const std::int64_t query =
      std::int64_t{blocks - 1 - static_cast<int>(blockIdx.x % blocks)} * kOwn;  // the longest first
  const std::int64_t mine = query + warp_index() * 16, stride = o.stride;
  const T *q = o.qkv + o.q_offset(problem), *k = o.qkv + o.k_offset(problem), *v = k + o.kv_width();
  const int lane = lane_index(), own = warp_index() * 16 * Tile::kStride;
  const ProblemDropout dropout(o, problem);
  const auto fetch = [&](std::int64_t first, int stage) {
    fetch_rows<M, kSize>(k + first * stride, stride, Tile::kOther, o.t - first,
                         shared.other[stage][0]);
    fetch_rows<M, kSize>(v + first * stride, stride, Tile::kOther, o.t - first,
                         shared.other[stage][1]);
  };
  fetch_rows<M, kSize>(q + query * stride, stride, kOwn, o.t - query, shared.own[0]);
  fetch_rows<M, kSize>(o.dy + o.y_offset(problem) + query * o.width(), o.width(), kOwn, o.t - query,
                       shared.own[1]);
  fetch(0, 0);
  commit_copies();

  float lse[2], weight[2], dq[kSize / 8][4] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = mine + lane / 4 + 8 * half;
    lse[half] = row < o.t ? o.lse[problem * o.t + row] : 0;
    weight[half] = row < o.t ? o.weights[problem * o.t + row] : 0;
  }
  const std::int64_t end = kCausal && query + kOwn < o.t ? query + kOwn : o.t;
  int stage = 0;
  for (std::int64_t first = 0; first < end; first += Tile::kOther, stage ^= 1) {
    if (first + Tile::kOther < end) fetch(first + Tile::kOther, stage ^ 1);
    commit_copies();
    wait_copies<1>();  // all except those of the next chunk, which does not exist for the last one
    __syncthreads();
    if (!kCausal || first <= mine + 15) {
      float scores[Tile::kOther / 8][4], slopes[Tile::kOther / 8][4];
      multiply_tiles<M, kSize>(shared.own[0] + own, shared.other[stage][0], scores);
      multiply_tiles<M, kSize>(shared.own[1] + own, shared.other[stage][1], slopes);
#pragma unroll
      for (int n = 0; n < Tile::kOther / 8; ++n) {
        float factors[4] = {1, 1, 1, 1};
        if (dropout.active) draw_by_queries(dropout, mine, first + 8 * n, factors);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::int64_t row = mine + lane / 4 + i / 2 * 8,
                             column = first + 8 * n + lane % 4 * 2 + i % 2;
          pull_back((kCausal ? column <= row : column < o.t) && row < o.t, o.scale, lse[i / 2],
                    weight[i / 2], factors[i], scores[n][i], slopes[n][i]);
        }
      }
      add_tiles<M, kSize>(slopes, shared.other[stage][0], dq);
    }
    __syncthreads();
  }
  const float factor[2] = {o.scale, o.scale};
  store_tiles<kSize>(dq, factor, mine, o.t, stride, o.add, o.dqkv + o.q_offset(problem));
}

// pull_back() for one tile of 8 queries from `start` on, with the keys of the warp from `mine` on.
template <bool kCausal, class T>
__device__ __forceinline__ void pull_back_keys(const AttentionOperands<T>& o, std::int64_t problem,
                                               const ProblemDropout& dropout, std::int64_t mine,
                                               std::int64_t start, float (&scores)[4],
                                               float (&slopes)[4]) {
  const float *lse = o.lse + problem * o.t, *weights = o.weights + problem * o.t;
  const int lane = lane_index();
  float factors[4] = {1, 1, 1, 1};
  if (dropout.active) draw_by_keys(dropout, mine, start, factors);
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const std::int64_t query = start + lane % 4 * 2 + side, row = mine + lane / 4;
    const bool real = query < o.t;
    const float of_query = real ? lse[query] : 0, weight = real ? weights[query] : 0;
    pull_back(real && (!kCausal || row <= query), o.scale, of_query, weight, factors[side],
              scores[side], slopes[side]);
    pull_back(real && (!kCausal || row + 8 <= query), o.scale, of_query, weight, factors[2 + side],
              scores[2 + side], slopes[2 + side]);
  }
}

// kGroups: several heads read the keys; false spares their loop its registers.
template <class T, class M, int kSize, bool kCausal, bool kGroups>
__global__ void __launch_bounds__(kMmaThreads)
    mma_backward_keys(AttentionOperands<T> o, int blocks) {
  using Tile = MmaTile<M, kSize>;
  constexpr int kStep =
      kSize == 128 || Tile::kOther < 32 ? 16 : 32;  // queries at a time: limited by the registers
                                                    // that dK and dV leave
  auto& shared = block_shared<Shared<M, kSize>>();
  const int group = kGroups ? o.group : 1;
  const std::int64_t shared_by = blockIdx.x / blocks * group,  // the first problem of the group
      key = std::int64_t{static_cast<int>(blockIdx.x % blocks)} * kOwn;
  const std::int64_t mine = key + warp_index() * 16, stride = o.stride;
  const T *k = o.qkv + o.k_offset(shared_by), *v = k + o.kv_width();
  const int own = warp_index() * 16 * Tile::kStride;
  fetch_rows<M, kSize>(k + key * stride, stride, kOwn, o.t - key, shared.own[0]);
  fetch_rows<M, kSize>(v + key * stride, stride, kOwn, o.t - key, shared.own[1]);

  float dk[kSize / 8][4] = {}, dv[kSize / 8][4] = {};
#pragma unroll 1
  for (std::int64_t problem = shared_by; problem < shared_by + group; ++problem) {
    const T *q = o.qkv + o.q_offset(problem), *dy = o.dy + o.y_offset(problem);
    const ProblemDropout dropout(o, problem);
    const auto fetch = [&](std::int64_t first, int stage) {
      fetch_rows<M, kSize>(q + first * stride, stride, Tile::kOther, o.t - first,
                           shared.other[stage][0]);
      fetch_rows<M, kSize>(dy + first * o.width(), o.width(), Tile::kOther, o.t - first,
                           shared.other[stage][1]);
    };
    const std::int64_t begin = kCausal ? key : 0;  // of the queries that see the block's keys
    fetch(begin, 0);                               // kOther divides kOwn
    commit_copies();
    int stage = 0;
    for (std::int64_t first = begin; first < o.t; first += Tile::kOther, stage ^= 1) {
      if (first + Tile::kOther < o.t) fetch(first + Tile::kOther, stage ^ 1);
      commit_copies();
      wait_copies<1>();  // all except those of the next chunk, which does not exist for the last
      __syncthreads();
#pragma unroll 1
      for (int step = 0; step < Tile::kOther; step += kStep) {
        const std::int64_t start = first + step;
        if (kCausal && start + kStep <= mine)
          continue;  // no query of the step sees a key of the warp
        const M *queries = shared.other[stage][0] + step * Tile::kStride,
                *gradients = shared.other[stage][1] + step * Tile::kStride;
        float scores[kStep / 8][4], slopes[kStep / 8][4];
        multiply_tiles<M, kSize>(shared.own[0] + own, queries, scores);
        multiply_tiles<M, kSize>(shared.own[1] + own, gradients, slopes);
#pragma unroll
        for (int n = 0; n < kStep / 8; ++n)
          pull_back_keys<kCausal>(o, problem, dropout, mine, start + 8 * n, scores[n], slopes[n]);
        add_tiles<M, kSize>(scores, gradients, dv);
        add_tiles<M, kSize>(slopes, queries, dk);
      }
      __syncthreads();
    }
  }
  const float one[2] = {1, 1}, factor[2] = {o.scale, o.scale};
  T* to = o.dqkv + o.k_offset(shared_by);
  store_tiles<kSize>(dk, factor, mine, o.t, stride, o.add, to);
  store_tiles<kSize>(dv, one, mine, o.t, stride, o.add, to + o.kv_width());
}

}  // namespace

template <class T>
void start_mma_backward(const AttentionOperands<T>& operands, bool causal, Products products,
                        void* stream) {
  with_mma_tile<T>(
      products, operands.size, [&]<class M, int kSize>(M, std::integral_constant<int, kSize>) {
        static_assert(sizeof(Shared<M, kSize>) == mma_shared_bytes(kSize * int{sizeof(M)}));
        const std::int64_t blocks = divide_up(operands.t, kOwn);
        const auto start = [&](const char* name, auto kernel, std::int64_t problems) {
          launch(name, kernel, {static_cast<unsigned>(problems * blocks)}, kMmaThreads,
                 sizeof(Shared<M, kSize>), stream, operands, static_cast<int>(blocks));
        };
        with_mask(causal, [&](auto mask) {
          start("attention_mma_backward_queries", mma_backward_queries<T, M, kSize, mask()>,
                operands.n * operands.heads);
          start("attention_mma_backward_keys",
                operands.group > 1 ? mma_backward_keys<T, M, kSize, mask(), true>
                                   : mma_backward_keys<T, M, kSize, mask(), false>,
                operands.n * (operands.heads / operands.group));
        });
      });
}

template void start_mma_backward(const AttentionOperands<float>&, bool, Products, void*);
template void start_mma_backward(const AttentionOperands<bf16>&, bool, Products, void*);
template void start_mma_backward(const AttentionOperands<f16>&, bool, Products, void*);

}  // namespace engine::ops::cuda
