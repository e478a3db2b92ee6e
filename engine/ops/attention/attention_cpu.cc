// Causal self-attention in float32: one head of one sample at a time, on the tiles of gemm_tiles.h.
//
// Keys and values are packed once a head, as the panels that the tiles read; blocks of kQueries
// rows then go over the keys in chunks of kKeys, so that scores, probabilities and their gradients
// are tiles of kQueries x kKeys that stay in L1. Forward keeps a running largest score and sum a
// row, and scales what it has by exp(old largest - new) when a chunk brings a larger one. Backward
// (Dao, FlashAttention-2, 2023) makes a tile of probabilities again, P = exp(S - lse), and adds its
// shares:
//   dV += P^T dY;  dS = P (dY V^T - row sums of dY Y) / sqrt(size);  dQ += dS K;  dK += dS^T Q
// Of a chunk only the panels up to the diagonal are computed. Threads share out heads; within one
// the order is fixed.
#include "engine/ops/attention/attention_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/flat_loops.h"
#include "engine/ops/common/simd_math.h"
#include "engine/ops/common/simd_philox.h"
#include "engine/ops/gemm/gemm_tiles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kQueries = 32, kKeys = 128;  // multiples of every kPanel
constexpr std::int64_t kTile = kQueries * kKeys;

ENGINE_INLINE std::int64_t padded(std::int64_t columns) { return panel_count(columns) * kPanel; }

// Packed panels and tiles of one thread.
struct Buffers {
  float *keys_across, *values_across;  // [panels of keys][size][panel]: B of Q K^T and of dY V^T
  float *keys_down, *values_down;      // [panels of size][t][panel]: B of dS K and of P V
  float *queries, *gradients;  // [panels of size][kQueries][panel]: B of dS^T Q and of P^T dY
  float *first_tile, *second_tile, *dropped;  // [kQueries][kKeys] twice, [kKeys]
};

std::int64_t thread_floats(std::int64_t t, std::int64_t size) {
  return 2 * padded(t) * size + 2 * padded(size) * t + 2 * padded(size) * kQueries + 2 * kTile +
         kKeys + 16;
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
  b.first_tile = take(kTile), b.second_tile = take(kTile), b.dropped = take(kKeys);
  b.keys_across = take(padded(t) * size), b.values_across = take(padded(t) * size);
  b.queries = take(padded(size) * kQueries), b.gradients = take(padded(size) * kQueries);
  b.keys_down = take(padded(size) * t), b.values_down = take(padded(size) * t);
  return b;
}

// Where a head of a sample lies; rows of q, k and v are 3 * width apart, those of y width.
struct Head {
  std::int64_t t, size, stride, width;
  const float *q, *k, *v;
  std::int64_t index, y_offset, qkv_offset;

  ENGINE_INLINE Head(const AttentionSizes& s, const float* qkv, std::int64_t i)
      : t(s.t), size(s.size), stride(3 * s.heads * s.size), width(s.heads * s.size), index(i) {
    const std::int64_t sample = i / s.heads, column = i % s.heads * size;
    y_offset = sample * t * width + column;
    qkv_offset = sample * t * stride + column;
    q = qkv + qkv_offset;
    k = q + width;
    v = k + width;
  }
};

// All t rows as columns: panel p holds rows [p * kPanel, ..) at every step of size.
void pack_across(const Head& head, const float* rows, float* to) {
  for (std::int64_t p = 0; p < panel_count(head.t); ++p)
    pack_columns(rows + p * kPanel * head.stride, head.stride, head.size,
                 smaller(head.t - p * kPanel, kPanel), panel_width(head.t, p),
                 to + p * kPanel * head.size);
}

// `count` rows of `size` as steps.
void pack_down(const float* rows, std::int64_t stride, std::int64_t count, std::int64_t size,
               float* to) {
  for (std::int64_t p = 0; p < panel_count(size); ++p)
    pack_rows(rows + p * kPanel, stride, count, smaller(size - p * kPanel, kPanel),
              to + p * kPanel * count);
}

// Steps [first, first + count) of panels that start `stride` apart.
struct Panels {
  const float* start;
  std::int64_t stride, first, count;
};

// Rows that start `stride` apart.
template <class T>
struct Strided {
  T* start;
  std::int64_t stride;
};

// c [rows, columns] = (or +=) a [rows, b.count] * B.
void multiply(Strided<const float> a, std::int64_t rows, const Panels& b, std::int64_t columns,
              Strided<float> c, bool add) {
  std::int64_t a_row[kMaxPointerRows], c_row[kMaxPointerRows];
  for (int i = 0; i < kMaxPointerRows; ++i) a_row[i] = i * a.stride, c_row[i] = i * c.stride;
  const EvenCut tiles(rows, kMaxPointerRows);
  for (std::int64_t p = 0; p < panel_count(columns); ++p) {
    const float* panel = b.start + p * b.stride + b.first * panel_width(columns, p);
    TileOutput out{nullptr, smaller(columns - p * kPanel, kPanel), add, nullptr, false};
    for (std::int64_t i = 0; i < tiles.pieces; ++i) {
      out.c = c.start + tiles.start(i) * c.stride + p * kPanel;
      pointer_tile_for<false>(tiles.size(i), out.columns)(
          {a.start + tiles.start(i) * a.stride, a_row, nullptr, b.count, c_row}, panel, out);
    }
  }
}

// c [rows, columns] += the transpose of a [steps, rows] * B [panels][steps][panel]. Rows of a are
// kKeys apart.
void add_transposed(const float* a, std::int64_t rows, std::int64_t steps, const float* b,
                    std::int64_t columns, float* c, std::int64_t c_stride) {
  const EvenCut tiles(rows, kMaxStridedRows);
  for (std::int64_t p = 0; p < panel_count(columns); ++p) {
    TileOutput out{nullptr, smaller(columns - p * kPanel, kPanel), true, nullptr, false};
    for (std::int64_t i = 0; i < tiles.pieces; ++i) {
      out.c = c + tiles.start(i) * c_stride + p * kPanel;
      adjacent_tile_for<false>(tiles.size(i), out.columns)(
          {a + tiles.start(i), nullptr, kKeys, steps, c_stride}, b + p * kPanel * steps, out);
    }
  }
}

// Keys [first, first + count) of a chunk that queries [query, query + rows) may see; the panels of
// `computed` cover them.
struct Chunk {
  std::int64_t query, rows, first, count, computed;
  ENGINE_INLINE Chunk(const Head& head, std::int64_t block, std::int64_t start)
      : query(block), rows(smaller(head.t - block, kQueries)), first(start) {
    count = smaller(query + rows - first, kKeys);
    computed = smaller(smaller(padded(count), kKeys),
                       head.t - first);  // whole panels, but for the last of all
  }
  ENGINE_INLINE std::int64_t seen(std::int64_t row) const {
    return smaller(query + row + 1 - first, count);
  }
};

// Keys (or values) from `first` on, a whole panel on, as columns; and those of the chunk as steps.
ENGINE_INLINE Panels across(const Head& head, const float* packed, std::int64_t first) {
  return {packed + first * head.size, kPanel * head.size, 0, head.size};
}
ENGINE_INLINE Panels down(const Head& head, const float* packed, const Chunk& chunk) {
  return {packed, kPanel * head.t, chunk.first, chunk.count};
}

ENGINE_INLINE Ints first_lanes(std::int64_t count) {
  Ints lane{};
  for (int i = 0; i < kWidth; ++i) lane[i] = i;
  return lane < Ints{} + static_cast<std::int32_t>(count);
}

// Factors 0 or 1 / (1 - rate) of the probabilities of a row of the chunk; `count` of them.
ENGINE_INLINE void draw_row(const AttentionSizes& s, const Head& head, const Chunk& chunk,
                            std::int64_t row, float* factors) {
  const std::int64_t h = head.index % s.heads, sample = s.sample_ids[head.index / s.heads];
  const auto blocks = static_cast<std::uint64_t>((s.t + 3) / 4);
  const auto start =
      static_cast<std::uint64_t>((sample * s.heads + h) * s.t + chunk.query + row) * blocks +
      static_cast<std::uint64_t>(chunk.first / 4);
  const Ints threshold = Ints{} + static_cast<std::int32_t>(s.threshold);
  std::uint32_t words[4 * kDraws];
  for (std::int64_t j = 0; j < chunk.count; j += 4 * kDraws) {
    philox_words(s.key, s.epoch, start + static_cast<std::uint64_t>(j / 4), words);
    for (std::int64_t i = 0; i < 4 * kDraws && j + i < kKeys; i += kWidth) {
      Words drawn;
      __builtin_memcpy(&drawn, words + i, sizeof drawn);
      store(factors + j + i,
            select(reinterpret_cast<Ints>(drawn >> 8) >= threshold, broadcast(s.factor), zero()));
    }
  }
}

// Scores of one row become exp(scale * (score - new largest)), columns behind `seen` 0 up to
// `count`.
struct RunningRow {
  float largest, sum;
};
ENGINE_INLINE float softmax_row(float* row, std::int64_t seen, std::int64_t count, float scale,
                                RunningRow& running) {
  Floats tops = broadcast(running.largest);
  const Floats lowest = broadcast(-__builtin_inff());
  for (std::int64_t j = 0; j < seen; j += kWidth) {
    const Floats scores = select(first_lanes(seen - j), load(row + j), lowest);
    store(row + j, scores);
    tops = max(tops, scores);
  }
  const float largest = horizontal_max(tops);
  const float shrink =
      running.sum == 0 ? 0 : horizontal_max(exp(broadcast((running.largest - largest) * scale)));
  const Floats factor = broadcast(scale), top = broadcast(largest);
  Floats sums = zero();
  std::int64_t j = 0;
  for (; j < seen; j += kWidth) {
    const Floats p = exp((load(row + j) - top) * factor);
    store(row + j, p);
    sums += p;
  }
  for (; j < count; j += kWidth) store(row + j, zero());
  running = {largest, running.sum * shrink + horizontal_sum(sums)};
  return shrink;
}

ENGINE_INLINE void scale_row(float* row, std::int64_t size, float factor) {
  for_each_vector(0, size, [=](auto lanes, std::int64_t c) {
    lanes.store_to(row + c, lanes.load_from(row + c) * broadcast(factor));
  });
}

// A block of queries over all the keys that it sees.
void forward_block(const AttentionSizes& s, const Head& head, const Buffers& b, std::int64_t block,
                   float* y, float* lse) {
  const float scale = 1.f / __builtin_sqrtf(static_cast<float>(head.size));
  RunningRow running[kQueries];
  const std::int64_t rows = smaller(head.t - block, kQueries);
  float* y_block = y + block * head.width;
  for (std::int64_t r = 0; r < rows; ++r) running[r] = {-__builtin_inff(), 0};
  for (std::int64_t first = 0; first < block + rows; first += kKeys) {
    const Chunk chunk(head, block, first);
    multiply({head.q + block * head.stride, head.stride}, rows, across(head, b.keys_across, first),
             chunk.computed, {b.first_tile, kKeys}, false);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = b.first_tile + r * kKeys;
      const float shrink = softmax_row(row, chunk.seen(r), chunk.count, scale, running[r]);
      if (first > 0) scale_row(y_block + r * head.width, head.size, shrink);
      if (s.sample_ids == nullptr) continue;
      draw_row(s, head, chunk, r, b.dropped);
      for (std::int64_t j = 0; j < chunk.count; j += kWidth)
        store(row + j, load(row + j) * load(b.dropped + j));
    }
    multiply({b.first_tile, kKeys}, rows, down(head, b.values_down, chunk), head.size,
             {y_block, head.width}, first > 0);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    scale_row(y_block + r * head.width, head.size, 1.f / running[r].sum);
    if (lse != nullptr)
      lse[block + r] = running[r].largest * scale + __builtin_logf(running[r].sum);
  }
}

void forward(const CausalAttentionForward& o, const AttentionSizes& s, ThreadPool& threads,
             float* scratch) {
  const float* qkv = floats(o.qkv);
  float *y = floats(o.y), *lse = floats(o.lse);
  threads.run(s.n * s.heads, [&](std::int64_t first, std::int64_t last, int thread) {
    const Buffers b = buffers_of(scratch, s.t, s.size, thread);
    for (std::int64_t i = first; i < last; ++i) {
      const Head head(s, qkv, i);
      pack_across(head, head.k, b.keys_across);
      pack_down(head.v, head.stride, head.t, head.size, b.values_down);
      for (std::int64_t block = 0; block < head.t; block += kQueries)
        forward_block(s, head, b, block, y + head.y_offset,
                      lse == nullptr ? nullptr : lse + i * s.t);
    }
  });
}

// What one head's part of backward reads and writes.
struct HeadOperands {
  const float *y, *lse, *dy;
  float* dqkv;
};

// Of a row of probabilities; `weight`: the sum over the keys of a probability times its gradient.
struct RowNumbers {
  float scale, lse, weight;
};

// first_tile: scores -> probabilities, dropped; second_tile: gradients of what was dropped ->
// gradients of scaled scores.
ENGINE_INLINE void backward_row(const AttentionSizes& s, const Head& head, const Buffers& b,
                                const Chunk& chunk, std::int64_t r, const RowNumbers& row) {
  float *p_row = b.first_tile + r * kKeys, *d_row = b.second_tile + r * kKeys;
  if (s.sample_ids != nullptr) draw_row(s, head, chunk, r, b.dropped);
  const std::int64_t seen = chunk.seen(r);
  std::int64_t j = 0;
  for (; j < seen; j += kWidth) {
    const Ints valid = first_lanes(seen - j);
    const Floats p =
        select(valid, exp(load(p_row + j) * broadcast(row.scale) - broadcast(row.lse)), zero());
    const Floats kept = s.sample_ids == nullptr ? broadcast(1.f) : load(b.dropped + j);
    store(p_row + j, p * kept);
    store(d_row + j,
          select(valid, p * (load(d_row + j) * kept - broadcast(row.weight)) * broadcast(row.scale),
                 zero()));
  }
  for (; j < chunk.count; j += kWidth) {
    store(p_row + j, zero());
    store(d_row + j, zero());
  }
}

void backward_block(const AttentionSizes& s, const Head& head, const Buffers& b, std::int64_t block,
                    const HeadOperands& o) {
  const float scale = 1.f / __builtin_sqrtf(static_cast<float>(head.size));
  const std::int64_t rows = smaller(head.t - block, kQueries);
  float weight[kQueries];
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t row = (block + r) * head.width;
    Floats sum = zero();
    for_each_vector(0, head.size, [&](auto lanes, std::int64_t c) {
      sum += lanes.load_from(o.y + row + c) * lanes.load_from(o.dy + row + c);
    });
    weight[r] = horizontal_sum(sum);
  }
  pack_down(head.q + block * head.stride, head.stride, rows, head.size, b.queries);
  pack_down(o.dy + block * head.width, head.width, rows, head.size, b.gradients);
  for (std::int64_t first = 0; first < block + rows; first += kKeys) {
    const Chunk chunk(head, block, first);
    multiply({head.q + block * head.stride, head.stride}, rows, across(head, b.keys_across, first),
             chunk.computed, {b.first_tile, kKeys}, false);
    multiply({o.dy + block * head.width, head.width}, rows, across(head, b.values_across, first),
             chunk.computed, {b.second_tile, kKeys}, false);
    for (std::int64_t r = 0; r < rows; ++r)
      backward_row(s, head, b, chunk, r, {scale, o.lse[block + r], weight[r]});
    float* dq = o.dqkv + block * head.stride;
    float* dk = o.dqkv + head.width + first * head.stride;
    multiply({b.second_tile, kKeys}, rows, down(head, b.keys_down, chunk), head.size,
             {dq, head.stride}, true);
    add_transposed(b.second_tile, chunk.count, rows, b.queries, head.size, dk, head.stride);
    add_transposed(b.first_tile, chunk.count, rows, b.gradients, head.size, dk + head.width,
                   head.stride);
  }
}

void backward(const CausalAttentionBackward& o, const AttentionSizes& s, ThreadPool& threads,
              float* scratch) {
  const float *qkv = floats(o.qkv), *y = floats(o.y), *lse = floats(o.lse), *dy = floats(o.dy);
  float* dqkv = floats(o.dqkv);
  const bool add = o.write == Write::kAdd;
  threads.run(s.n * s.heads, [&](std::int64_t first, std::int64_t last, int thread) {
    const Buffers b = buffers_of(scratch, s.t, s.size, thread);
    for (std::int64_t i = first; i < last; ++i) {
      const Head head(s, qkv, i);
      float* gradient = dqkv + head.qkv_offset;
      for (std::int64_t row = 0; !add && row < 3 * head.t; ++row)  // of dq, dk and dv in turn
        __builtin_memset(gradient + row / 3 * head.stride + row % 3 * head.width, 0,
                         static_cast<std::size_t>(head.size) * 4);
      pack_across(head, head.k, b.keys_across);
      pack_across(head, head.v, b.values_across);
      pack_down(head.k, head.stride, head.t, head.size, b.keys_down);
      for (std::int64_t block = 0; block < head.t; block += kQueries)
        backward_block(s, head, b, block,
                       {y + head.y_offset, lse + i * s.t, dy + head.y_offset, gradient});
    }
  });
}

}  // namespace

const AttentionTable attention_table{scratch_floats, forward, backward};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
