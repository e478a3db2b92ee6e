// The tile products of attention_cpu.cc: a head's rows, the blocks of queries and chunks of keys
// that they are divided into, and the products of these tiles, computed only where a query
// sees them. For products in bf16, packing rounds the operands and stores them as pairs
// (gemm_tiles.h). Only for sources compiled once per instruction set.
#pragma once

#include "engine/ops/attention/attention_cpu.h"
#include "engine/ops/gemm/gemm_tiles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

inline constexpr std::int64_t kQueries = 32, kKeys = 128;  // multiples of every kPanel

// Rows with distance `stride`.
template <class T>
struct Strided {
  T* start;
  std::int64_t stride;
  ENGINE_INLINE Strided from(std::int64_t row) const { return {start + row * stride, stride}; }
};
using Source = Strided<const float>;
using Target = Strided<float>;

// The location of one head of a sample; width is the distance between rows of y.
struct Head {
  std::int64_t t, size, index, width;
  std::int64_t ahead;  // the number of keys after its own that a query may see
  std::int64_t y_offset, q_offset, k_offset, v_offset;  // of the first row
  Source q, k, v;

  ENGINE_INLINE Head(const AttentionSizes& s, const float* qkv, std::int64_t i)
      : t(s.t), size(s.size), index(i), width(s.heads * s.size), ahead(s.ahead) {
    const std::int64_t sample = i / s.heads, h = i % s.heads, kv_width = s.kv_heads * size,
                       stride = width + 2 * kv_width;
    y_offset = sample * t * width + h * size;
    q_offset = sample * t * stride + h * size;
    k_offset = sample * t * stride + width + h / (s.heads / s.kv_heads) * size;
    v_offset = k_offset + kv_width;
    q = {qkv + q_offset, stride};
    k = {qkv + k_offset, stride};
    v = {qkv + v_offset, stride};
  }
  // The number of keys that the queries before `end` see.
  ENGINE_INLINE std::int64_t seen_before(std::int64_t end) const { return smaller(end + ahead, t); }
};

// Returns `count` rows for tiles that sum along the row, without packing; for bf16, rounds them
// into `room`, steps_of(size) per row.
ENGINE_INLINE Source read_across(Source rows, std::int64_t count, std::int64_t size, float* room) {
  if constexpr (!kPairs) return rows;
  for (std::int64_t row = 0; row < count; ++row)
    copy_steps(rows.from(row).start, size, room + row * steps_of(size));
  return {room, steps_of(size)};
}

// Returns `count` rows of kQueries columns for tiles that sum over the rows, without packing; for
// bf16, pairs them into `room`.
ENGINE_INLINE const float* read_down(const float* tile, [[maybe_unused]] std::int64_t count,
                                     [[maybe_unused]] float* room) {
#if defined(ENGINE_BF16_PAIRS)
  for (std::int64_t row = 0; row < count; row += 2)
    pair_rows(tile + row * kQueries, row + 1 < count ? tile + (row + 1) * kQueries : nullptr,
              kQueries, room + row / 2 * kQueries);
  return room;
#else
  return tile;
#endif
}

// Packs `count` rows as columns: panel p holds rows [p * kPanel, ..) at every step of size.
inline void pack_across(Source rows, std::int64_t count, std::int64_t size, float* to) {
  for (std::int64_t p = 0; p < panel_count(count); ++p)
    pack_columns(rows.from(p * kPanel).start, rows.stride, size,
                 smaller(count - p * kPanel, kPanel), panel_width(count, p),
                 to + p * kPanel * steps_of(size));
}

// Packs `count` rows as terms of a sum: panel p holds columns [p * kPanel, ..) of each row.
inline void pack_down(Source rows, std::int64_t count, std::int64_t size, float* to) {
  for (std::int64_t p = 0; p < panel_count(size); ++p)
    pack_rows(rows.start + p * kPanel, rows.stride, count, smaller(size - p * kPanel, kPanel),
              to + p * kPanel * steps_of(count));
}

// The block of queries [query, query + rows) and the chunk of keys [first, first + count); the
// block's last query sees the last of these keys.
struct Chunk {
  std::int64_t query, rows, first, count;
  std::int64_t diagonal;  // the place in the chunk of the last key that the first query sees
  ENGINE_INLINE Chunk(const Head& head, std::int64_t block, std::int64_t start)
      : query(block),
        rows(smaller(head.t - block, kQueries)),
        first(start),
        count(smaller(head.seen_before(block + rows) - start, kKeys)),
        diagonal(block + head.ahead - start) {}
  // The number of keys of the chunk that the block's query r sees.
  ENGINE_INLINE std::int64_t up_to(std::int64_t r) const {
    return smaller(diagonal + r + 1, count);
  }
  // For the vector of queries r to r + kWidth - 1: the number of keys that all of them see, and
  // that at least one of them sees.
  ENGINE_INLINE std::int64_t all_see(std::int64_t r) const { return up_to(r); }
  ENGINE_INLINE std::int64_t some_see(std::int64_t r) const { return up_to(r + kWidth - 1); }
};

// to [key][query] = row of the key . column of the query, for every vector that sees the key.
// `keys` comes from read_across(), `packed` from pack_across(); both have `steps`.
inline void multiply_across(std::int64_t steps, Source keys, const Chunk& chunk,
                            const float* packed, float* to) {
  std::int64_t a_row[kMaxPointerRows], c_row[kMaxPointerRows];
  for (int i = 0; i < kMaxPointerRows; ++i) a_row[i] = i * keys.stride, c_row[i] = i * kQueries;
  const auto run = [&](std::int64_t first, std::int64_t last, auto tile_for, const float* panel,
                       float* column, std::int64_t columns) {
    const EvenCut tiles(last - first, kMaxPointerRows);
    for (std::int64_t i = 0; first < last && i < tiles.pieces; ++i) {
      const std::int64_t key = first + tiles.start(i);
      tile_for(tiles.size(i))({keys.from(key).start, a_row, nullptr, steps, c_row}, panel,
                              {column + key * kQueries, columns, false, nullptr, false});
    }
  };
  for (std::int64_t p = 0; p < panel_count(chunk.rows); ++p) {
    const std::int64_t r = p * kPanel, width = panel_width(chunk.rows, p);
    const float* panel = packed + r * steps;
    const std::int64_t seen = chunk.some_see(r);
    run(
        0, seen, [=](std::int64_t rows) { return pointer_tile_for<false>(rows, width); }, panel,
        to + r, width);
    if (width == kPanel)  // keys that only the second vector sees
      run(
          seen, chunk.some_see(r + kWidth), [](std::int64_t rows) { return half_tile_for(rows); },
          panel + kWidth, to + r + kWidth, kWidth);
  }
}

// to [queries, size] = (or +=) tile [key][query], transposed, * keys (or values) packed down. The
// tile must be zero if a query does not see a key. `room` is memory for a tile of pairs.
inline void multiply_down(const Head& head, const float* tile, const Chunk& chunk,
                          const float* packed, Target to, bool add, float* room) {
  const float* read = read_down(tile, chunk.count, room);
  const EvenCut tiles(chunk.rows, kMaxPointerRows);  // more rows per tile would exploit less of the
                                                     // diagonal
  for (std::int64_t p = 0; p < panel_count(head.size); ++p) {
    const std::int64_t columns = smaller(head.size - p * kPanel, kPanel);
    const float* panel =
        packed + p * kPanel * steps_of(head.t) + steps_of(chunk.first) * panel_width(head.size, p);
    for (std::int64_t i = 0; i < tiles.pieces; ++i) {
      const std::int64_t r = tiles.start(i), keys = chunk.up_to(tiles.start(i + 1) - 1);
      adjacent_tile_for<false>(tiles.size(i), columns)(
          {read + r, nullptr, kQueries, steps_of(keys), to.stride}, panel,
          {to.from(r).start + p * kPanel, columns, add, nullptr, false});
    }
  }
}

// to [keys, size] += tile [key][query] * queries (or dy) packed down. The first block that sees a
// key (in causal attention, the one with the key's own position) overwrites unless `add`. The tile
// and `room` are as in multiply_down().
inline void multiply_keys(const Head& head, const float* tile, const Chunk& chunk,
                          const float* packed, Target to, bool add, float* room) {
  const Source read = read_across({tile, kQueries}, chunk.count, kQueries, room);
  const std::int64_t steps = steps_of(chunk.rows);
  std::int64_t a_row[kMaxPointerRows], c_row[kMaxPointerRows];
  for (int i = 0; i < kMaxPointerRows; ++i) a_row[i] = i * read.stride, c_row[i] = i * to.stride;
  const std::int64_t before = chunk.query > 0 ? smaller(larger(chunk.diagonal, 0), chunk.count) : 0;
  const auto run = [&](std::int64_t first, std::int64_t last, bool diagonal) {
    const EvenCut tiles(last - first, kMaxPointerRows);
    for (std::int64_t p = 0; first < last && p < panel_count(head.size); ++p) {
      const std::int64_t columns = smaller(head.size - p * kPanel, kPanel),
                         width = panel_width(head.size, p);
      for (std::int64_t i = 0; i < tiles.pieces; ++i) {
        const std::int64_t key = first + tiles.start(i);
        const std::int64_t seen = diagonal ? larger(key - chunk.diagonal, 0) : 0,
                           r = kPairs ? seen / 2 : seen;  // the step of the first query that sees
                                                          // it
        pointer_tile_for<false>(tiles.size(i), columns)(
            {read.from(key).start + r, a_row, nullptr, steps - r, c_row},
            packed + p * kPanel * steps + r * width,
            {to.from(chunk.first + key).start + p * kPanel, columns, add || !diagonal, nullptr,
             false});
      }
    }
  };
  run(0, before, false);
  run(before, chunk.count, true);
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
