// Self-attention in float32: one head of one sample at a time, on the tiles of gemm_tiles.h.
//
// Blocks of kQueries rows process the visible keys in chunks of kKeys. Scores, probabilities and
// their gradients are tiles of kKeys x kQueries that stay in L1, transposed: a vector holds one
// key's scores for adjacent queries, so that the softmax needs no sums across lanes, and only tiles
// at the diagonal need masks. Queries are packed as the panels that the tiles read; keys and values
// are read in place, except for products that sum over them. Forward keeps a running maximum and
// sum per query, and scales its partial results by exp(old maximum - new) if a chunk raises the
// maximum. Backward (Dao, FlashAttention-2, 2023) recomputes a tile of probabilities, P = exp(S -
// lse), and adds its contributions:
//   dV += P^T dY;  dS = P (dY V^T - row sums of dY Y) / sqrt(size);  dQ += dS K;  dK += dS^T Q
// Exponents are in units of log(2), which saves half of exp. In causal attention, only the rows and
// columns of a tile up to the diagonal are computed. Threads divide the heads, in backward those of
// keys and values; the order within a head is fixed.
#include "engine/ops/attention/attention_cpu.h"

#include "engine/ops/attention/attention_products.h"
#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/flat_loops.h"
#include "engine/ops/common/simd_math.h"
#include "engine/ops/common/simd_philox.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kTile = kKeys * kQueries;
constexpr std::int64_t kQueryVectors = kQueries / kWidth;
constexpr float kLog2E = 0x1.715476p+0f, kLog2 = 0x1.62e43p-1f;

ENGINE_INLINE std::int64_t padded(std::int64_t columns) { return panel_count(columns) * kPanel; }

// The packed panels and tiles of one thread; panels have steps_of() the terms that they sum over.
struct Buffers {
  float *scores, *gradients;    // [kKeys][kQueries]
  float* kept;                  // same shape: dropout factors
  float *across, *dy_across;    // queries, dy: [panels of kQueries][size][panel]
  float *down, *dy_down;        // queries, dy: [panels of size][kQueries][panel]
  float* all_down;              // values (forward) or keys (backward): [panels of size][t][panel]
  float *keys, *values, *tile;  // operands that tiles read in place, rounded for bf16
};

ENGINE_INLINE std::int64_t rounded_floats(std::int64_t t, std::int64_t size) {
  if (!kPairs) return 0;
  return 2 * t * steps_of(size) + kTile / 2;
}

std::int64_t thread_floats(std::int64_t t, std::int64_t size) {
  return 3 * kTile + 2 * kQueries * steps_of(size) +
         padded(size) * (2 * steps_of(kQueries) + steps_of(t)) + rounded_floats(t, size) + 16;
}

std::int64_t scratch_floats(std::int64_t t, std::int64_t size, int threads) {
  return threads * ((thread_floats(t, size) + 15) / 16 * 16);
}

ENGINE_INLINE Buffers buffers_of(float* scratch, std::int64_t t, std::int64_t size, int thread) {
  float* at = scratch + thread * scratch_floats(t, size, 1);
  const auto take = [&](std::int64_t floats) {
    float* taken = at;
    at += floats;
    return taken;
  };
  Buffers b{};
  b.scores = take(kTile), b.gradients = take(kTile), b.kept = take(kTile);
  b.across = take(kQueries * steps_of(size)), b.dy_across = take(kQueries * steps_of(size));
  b.down = take(padded(size) * steps_of(kQueries));
  b.dy_down = take(padded(size) * steps_of(kQueries));
  b.all_down = take(padded(size) * steps_of(t));
  if (!kPairs) return b;
  b.keys = take(t * steps_of(size)), b.values = take(t * steps_of(size));
  b.tile = take(kTile / 2);
  return b;
}

// Calls body(key, lanes that see it) for keys [first, last) of the chunk and the vector of queries
// starting at r.
template <class Body>
ENGINE_INLINE void for_masked_keys(const Chunk& chunk, std::int64_t r, std::int64_t first,
                                   std::int64_t last, Body body) {
  Ints query{};
  for (int i = 0; i < kWidth; ++i) query[i] = i;
  for (std::int64_t j = first; j < last; ++j)
    body(j, query >= Ints{} + static_cast<std::int32_t>(j - chunk.diagonal - r));
}

// Writes zeros for keys that another vector of the block has computed but this one does not see.
ENGINE_INLINE void clear_unseen(const Chunk& chunk, std::int64_t r, float* column) {
  for (std::int64_t j = chunk.some_see(r); j < chunk.count; ++j)
    store(column + j * kQueries, zero());
}

// Draws the dropout factors of a chunk's probabilities, 0 or 1 / (1 - rate), for whole vectors of
// queries.
void draw_factors(const AttentionSizes& s, const Head& head, const Chunk& chunk, float* factors) {
  const std::int64_t h = head.index % s.heads, sample = s.sample_ids[head.index / s.heads];
  const auto row_blocks = static_cast<std::uint64_t>((s.t + 3) / 4);
  const Ints threshold = Ints{} + static_cast<std::int32_t>(s.threshold);
  for (std::int64_t r = 0; r < chunk.rows; r += kWidth) {
    const auto start =
        static_cast<std::uint64_t>((sample * s.heads + h) * s.t + chunk.query + r) * row_blocks;
    for (std::int64_t j = 0; j < chunk.some_see(r); j += 4) {
      const WordBlocks words = philox_blocks(
          s.key, s.epoch, start + static_cast<std::uint64_t>((chunk.first + j) / 4), row_blocks);
      for (int i = 0; i < 4; ++i)
        store(factors + (j + i) * kQueries + r,
              select(reinterpret_cast<Ints>(words.at[i] >> 8) >= threshold, broadcast(s.factor),
                     zero()));
    }
  }
}

// For each query of a vector: the largest score, and the sum of 2^(factor * (score - largest)).
struct RunningSoftmax {
  Floats largest, sum;
};

// Replaces the scores of a vector of queries by 2^(factor * (score - new largest)), or 0 if the
// query does not see the key. Returns the factor that scales earlier results.
ENGINE_INLINE Floats softmax_column(const Chunk& chunk, std::int64_t r, float factor, float* column,
                                    RunningSoftmax& running) {
  const std::int64_t all = chunk.all_see(r), some = chunk.some_see(r);
  const Floats lowest = broadcast(-__builtin_inff()), unit = broadcast(factor);
  Floats tops[2] = {running.largest, running.largest};
  std::int64_t j = 0;
  for (; j + 2 <= all; j += 2) {
    tops[0] = max(tops[0], load(column + j * kQueries));
    tops[1] = max(tops[1], load(column + (j + 1) * kQueries));
  }
  if (j < all) tops[0] = max(tops[0], load(column + j * kQueries));
  for_masked_keys(chunk, r, all, some, [&](std::int64_t key, Ints seen) {
    tops[1] = max(tops[1], select(seen, load(column + key * kQueries), lowest));
  });
  const Floats largest = max(tops[0], tops[1]);
  const Floats shrink = exp2((running.largest - largest) * unit);
  Floats sum = zero();
  for (j = 0; j < all; ++j) {
    const Floats p = exp2((load(column + j * kQueries) - largest) * unit);
    store(column + j * kQueries, p);
    sum += p;
  }
  for_masked_keys(chunk, r, all, some, [&](std::int64_t key, Ints seen) {
    const Floats p = select(seen, exp2((load(column + key * kQueries) - largest) * unit), zero());
    store(column + key * kQueries, p);
    sum += p;
  });
  clear_unseen(chunk, r, column);
  running = {largest, running.sum * shrink + sum};
  return shrink;
}

ENGINE_INLINE void scale_rows(Target y, std::int64_t rows, std::int64_t size,
                              const float* factors) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const Floats factor = broadcast(factors[r]);
    float* row = y.from(r).start;
    for_each_vector(0, size, [=](auto lanes, std::int64_t c) {
      lanes.store_to(row + c, lanes.load_from(row + c) * factor);
    });
  }
}

ENGINE_INLINE float score_scale(const Head& head) {
  return 1.f / __builtin_sqrtf(static_cast<float>(head.size));
}

// Computes a block of queries over all the keys that it sees.
void forward_block(const AttentionSizes& s, const Head& head, const Buffers& b, Source keys,
                   std::int64_t block, Target y, float* lse) {
  const float factor = score_scale(head) * kLog2E;
  const std::int64_t rows = smaller(head.t - block, kQueries);
  RunningSoftmax running[kQueryVectors];
  for (RunningSoftmax& each : running) each = {broadcast(-__builtin_inff()), zero()};
  float factors[kQueries];
  pack_across(head.q.from(block), rows, head.size, b.across);
  for (std::int64_t first = 0; first < head.seen_before(block + rows); first += kKeys) {
    const Chunk chunk(head, block, first);
    multiply_across(steps_of(head.size), keys.from(first), chunk, b.across, b.scores);
    for (std::int64_t r = 0; r < rows; r += kWidth)
      store(factors + r, softmax_column(chunk, r, factor, b.scores + r, running[r / kWidth]));
    if (first > 0) scale_rows(y, rows, head.size, factors);
    if (s.sample_ids != nullptr) {
      draw_factors(s, head, chunk, b.kept);
      for (std::int64_t r = 0; r < rows; r += kWidth)
        for (std::int64_t j = r; j < chunk.some_see(r) * kQueries; j += kQueries)
          store(b.scores + j, load(b.scores + j) * load(b.kept + j));
    }
    multiply_down(head, b.scores, chunk, b.all_down, y, first > 0, b.tile);
  }
  for (std::int64_t r = 0; r < rows; r += kWidth) {
    const RunningSoftmax& at = running[r / kWidth];
    store(factors + r, broadcast(1.f) / at.sum);
    if (lse == nullptr) continue;
    const Floats all = at.largest * broadcast(factor * kLog2) + log(at.sum);
    store_partial(lse + r, all, smaller(rows - r, kWidth));
  }
  scale_rows(y, rows, head.size, factors);
}

void forward(const AttentionForward& o, const AttentionSizes& s, ThreadPool& threads,
             float* scratch) {
  const float* qkv = floats(o.qkv);
  float *y = floats(o.y), *lse = floats(o.lse);
  threads.run(s.n * s.heads, [&](std::int64_t first, std::int64_t last, int thread) {
    const TileScope scope;
    const Buffers b = buffers_of(scratch, s.t, s.size, thread);
    for (std::int64_t i = first; i < last; ++i) {
      const Head head(s, qkv, i);
      const Target rows{y + head.y_offset, head.width};
      pack_down(head.v, head.t, head.size, b.all_down);
      const Source keys = read_across(head.k, head.t, head.size, b.keys);
      for (std::int64_t block = 0; block < head.t; block += kQueries)
        forward_block(s, head, b, keys, block, rows.from(block),
                      lse == nullptr ? nullptr : lse + i * s.t + block);
    }
  });
}

// The inputs of one block in backward: all keys and values; the rows of `lse` and y start at the
// block.
struct BlockInputs {
  Source keys, values, y, dy;
  const float* lse;
};

// Two values per query of a block: lse in units of log(2), and the sum over the keys of a
// probability times its gradient.
struct RowNumbers {
  float lse[kQueries], weight[kQueries];
};

ENGINE_INLINE void row_numbers(const Head& head, const BlockInputs& in, std::int64_t rows,
                               RowNumbers& to) {
  const auto weight = [&](std::int64_t r) {
    Floats sum = zero();
    if (r >= rows) return sum;
    const float *y = in.y.from(r).start, *dy = in.dy.from(r).start;
    for_each_vector(0, head.size, [&](auto lanes, std::int64_t c) {
      sum += lanes.load_from(y + c) * lanes.load_from(dy + c);
    });
    return sum;
  };
  for (std::int64_t r = 0; r < kQueries; r += 4)
    store_quad(to.weight + r,
               horizontal_sums(weight(r), weight(r + 1), weight(r + 2), weight(r + 3)));
  for (std::int64_t r = 0; r < kQueries; r += kWidth)
    store(to.lse + r,
          load_partial(in.lse + r, smaller(larger(rows - r, 0), kWidth)) * broadcast(kLog2E));
}

// For a vector of queries, replaces scores by probabilities after dropout, and the gradients of
// these by gradients of the scaled scores.
ENGINE_INLINE void backward_column(const Chunk& chunk, std::int64_t r, const Buffers& b,
                                   const RowNumbers& numbers, bool dropout, float scale) {
  const Floats lse = load(numbers.lse + r), weight = load(numbers.weight + r),
               unit = broadcast(scale * kLog2E), factor = broadcast(scale);
  const auto gradient = [&](std::int64_t j, auto seen) {
    float *score = b.scores + j * kQueries + r, *d = b.gradients + j * kQueries + r;
    const Floats p = seen(exp2(load(score) * unit - lse));
    const Floats kept = dropout ? load(b.kept + j * kQueries + r) : broadcast(1.f);
    store(score, p * kept);
    store(d, seen(p * factor * (load(d) * kept - weight)));
  };
  const std::int64_t all = chunk.all_see(r);
  for (std::int64_t j = 0; j < all; ++j) gradient(j, [](Floats v) { return v; });
  for_masked_keys(chunk, r, all, chunk.some_see(r), [&](std::int64_t j, Ints seen) {
    gradient(j, [=](Floats v) { return select(seen, v, zero()); });
  });
  clear_unseen(chunk, r, b.scores + r);
  clear_unseen(chunk, r, b.gradients + r);
}

// The gradients of a head: of its queries, and of its keys and values, to which other heads may
// have added before.
struct HeadGradients {
  Target dq, dk, dv;
  bool add, add_to_keys;
};

void backward_block(const AttentionSizes& s, const Head& head, const Buffers& b, std::int64_t block,
                    const BlockInputs& in, const HeadGradients& to) {
  const float scale = score_scale(head);
  const std::int64_t rows = smaller(head.t - block, kQueries);
  const Source q = head.q.from(block);
  const Target dq = to.dq.from(block);
  RowNumbers numbers;
  row_numbers(head, in, rows, numbers);
  pack_across(q, rows, head.size, b.across);
  pack_across(in.dy, rows, head.size, b.dy_across);
  pack_down(q, rows, head.size, b.down);
  pack_down(in.dy, rows, head.size, b.dy_down);
  for (std::int64_t first = 0; first < head.seen_before(block + rows); first += kKeys) {
    const Chunk chunk(head, block, first);
    multiply_across(steps_of(head.size), in.keys.from(first), chunk, b.across, b.scores);
    multiply_across(steps_of(head.size), in.values.from(first), chunk, b.dy_across, b.gradients);
    if (s.sample_ids != nullptr) draw_factors(s, head, chunk, b.kept);
    for (std::int64_t r = 0; r < rows; r += kWidth)
      backward_column(chunk, r, b, numbers, s.sample_ids != nullptr, scale);
    multiply_down(head, b.gradients, chunk, b.all_down, dq, to.add || first > 0, b.tile);
    multiply_keys(head, b.gradients, chunk, b.down, to.dk, to.add_to_keys, b.tile);
    multiply_keys(head, b.scores, chunk, b.dy_down, to.dv, to.add_to_keys, b.tile);
  }
}

void backward(const AttentionBackward& o, const AttentionSizes& s, ThreadPool& threads,
              float* scratch) {
  const float *qkv = floats(o.qkv), *y = floats(o.y), *lse = floats(o.lse), *dy = floats(o.dy);
  float* dqkv = floats(o.dqkv);
  const bool add = o.write == Write::kAdd;
  const std::int64_t group = s.heads / s.kv_heads;
  threads.run(s.n * s.kv_heads, [&](std::int64_t first, std::int64_t last, int thread) {
    const TileScope scope;
    const Buffers b = buffers_of(scratch, s.t, s.size, thread);
    for (std::int64_t i = first * group; i < last * group; ++i) {
      const Head head(s, qkv, i);
      const Source y_rows{y + head.y_offset, head.width}, dy_rows{dy + head.y_offset, head.width};
      const std::int64_t stride = head.q.stride;
      const HeadGradients gradients{{dqkv + head.q_offset, stride},
                                    {dqkv + head.k_offset, stride},
                                    {dqkv + head.v_offset, stride},
                                    add,
                                    add || i % group > 0};
      pack_down(head.k, head.t, head.size, b.all_down);
      const Source keys = read_across(head.k, head.t, head.size, b.keys),
                   values = read_across(head.v, head.t, head.size, b.values);
      for (std::int64_t block = 0; block < head.t; block += kQueries)
        backward_block(
            s, head, b, block,
            {keys, values, y_rows.from(block), dy_rows.from(block), lse + i * s.t + block},
            gradients);
    }
  });
}

}  // namespace

const AttentionTable attention_table{scratch_floats, forward, backward};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
