// Matrix products: blocking, packing and the division among threads around the tiles of
// gemm_tiles.h.
//
// The summed dimension is divided into chunks of at most kStepsInCache, so that one packed panel of
// B (kPanel columns x chunk) stays in L1 while all row tiles of a block use it. A block of 192 rows
// x chunk of A stays in L2. A small m has a single block: then a panel is packed just before its
// only use and never leaves L1. Otherwise all of B is packed once in advance. Bound by the FMA
// rate: packing moves m * k + k * n elements for 2 * m * n * k operations. In bf16 (gemm_tiles.h)
// the rows of A, which tiles read in place, are first rounded and paired; rows stored in bf16 with
// an even number of terms already have this form.
#include "engine/ops/gemm/gemm_cpu.h"

#include "engine/ops/gemm/gemm_tiles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kRowBlock = 192;
constexpr std::int64_t kChunkFloats = kPanel * kStepsInCache;

struct Range {
  std::int64_t first, last;
};

void pack_b(const GemmRows& g, std::int64_t panel, std::int64_t first_step, std::int64_t steps,
            float* to) {
  const std::int64_t column = panel * kPanel, columns = smaller(g.n - column, kPanel),
                     first = first_step * kTerms, terms = smaller(steps * kTerms, g.k - first);
  if (g.b_transposed) {
    pack_columns(g.b + column * g.b_stride + first, g.b_stride, terms, columns,
                 panel_width(g.n, panel), to);
  } else {
    pack_rows(g.b + first * g.b_stride + column, g.b_stride, terms, columns, to);
  }
}

// The input of tiles: A as steps, with distance `stride` between rows.
struct Steps {
  const float* a;
  std::int64_t stride;
};

// A panel of B, packed, and the sums of the rows between chunks, where c is halves.
struct Panel {
  std::int64_t number;
  const float* b;
  float* between;
};

// One chunk of steps of one panel over at most kRowBlock rows.
void run_panel(const GemmRows& g, const Steps& a, Range rows, const EvenCut& chunks,
               std::int64_t chunk, const Panel& panel) {
  const std::int64_t column = panel.number * kPanel;
  std::int64_t a_row[kMaxPointerRows], c_row[kMaxPointerRows];
  for (int i = 0; i < kMaxPointerRows; ++i) a_row[i] = i * a.stride, c_row[i] = i * g.c_stride;
  const EvenCut tiles(rows.last - rows.first, kMaxPointerRows);
  for (std::int64_t t = 0; t < tiles.pieces; ++t) {
    const std::int64_t row = rows.first + tiles.start(t);
    TileOutputOf<Stored> out{static_cast<Stored*>(g.c) + row * g.c_stride + column,
                             smaller(g.n - column, kPanel), g.add,
                             g.bias == nullptr ? nullptr : g.bias + column, g.relu};
    out.set_chunk(chunk, chunks.pieces, panel.between + tiles.start(t) * kPanel);
    const PointerRows tile{a.a + row * a.stride + chunks.start(chunk), a_row, nullptr,
                           chunks.size(chunk), c_row};
    pointer_tile_for<false, Stored>(tiles.size(t), out.columns)(tile, panel.b, out);
  }
}

// The size of the sums of a block of rows between chunks, for all panels.
std::int64_t between_floats(std::int64_t m, std::int64_t n, std::int64_t k) {
  if (!kHalves || steps_of(k) <= kStepsInCache) return 0;
  return smaller(m, kRowBlock) * panel_count(n) * kPanel;
}
// Computes the rows and panels of one thread. `packed` holds all of B, or is nullptr: then panels
// are packed into `buffer` one at a time.
void run_block(const GemmRows& g, const Steps& a, Range rows, Range panels, const float* packed,
               float* buffer, float* between) {
  if (rows.first == rows.last) return;
  const TileScope scope;
  const EvenCut chunks(steps_of(g.k), kStepsInCache);
  const EvenCut blocks(rows.last - rows.first, kRowBlock);
  for (std::int64_t block = 0; block < blocks.pieces; ++block) {
    const Range block_rows{rows.first + blocks.start(block), rows.first + blocks.start(block + 1)};
    for (std::int64_t chunk = 0; chunk < chunks.pieces; ++chunk) {
      for (std::int64_t panel = panels.first; panel < panels.last; ++panel) {
        const float* b = buffer;
        if (packed != nullptr) {
          b = packed + panel * kPanel * steps_of(g.k) +
              chunks.start(chunk) * panel_width(g.n, panel);
        } else {
          pack_b(g, panel, chunks.start(chunk), chunks.size(chunk), buffer);
        }
        run_panel(g, a, block_rows, chunks, chunk,
                  {panel, b, between + panel * kPanel * (block_rows.last - block_rows.first)});
      }
    }
  }
}

std::int64_t packed_a_floats(std::int64_t m, std::int64_t steps) {
  return (m * steps + 15) / 16 * 16;
}

std::int64_t packed_floats(std::int64_t n, std::int64_t k) {
  return panel_count(n) * kPanel * steps_of(k);
}

// Returns true if rows of A are steps without packing.
bool in_place(std::int64_t k) { return !kPairs || (kHalves && k % kTerms == 0); }

std::int64_t rows_scratch(std::int64_t m, std::int64_t n, std::int64_t k, int threads) {
  const std::int64_t buffers = threads * kChunkFloats, steps = steps_of(k);
  return (in_place(k) ? 0 : packed_a_floats(m, steps)) + threads * between_floats(m, n, k) +
         (m <= kRowBlock ? buffers : larger(buffers, packed_floats(n, k)));
}

void pack(const GemmRows& g, ThreadPool& threads, float* to) {
  threads.run(panel_count(g.n), [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t panel = first; panel < last; ++panel)
      pack_b(g, panel, 0, steps_of(g.k), to + panel * kPanel * steps_of(g.k));
  });
}

Steps steps_of_a(const GemmRows& g, ThreadPool& threads, float* room) {
  if (in_place(g.k)) return {static_cast<const float*>(g.a), g.a_stride / kTerms};
  const std::int64_t steps = steps_of(g.k);
  threads.run(g.m, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t row = first; row < last; ++row)
      copy_steps(static_cast<const Stored*>(g.a) + row * g.a_stride, g.k, room + row * steps);
  });
  return {room, steps};
}

void rows(const GemmRows& g, ThreadPool& threads, float* scratch) {
  const std::int64_t panels = panel_count(g.n), steps = steps_of(g.k);
  const Steps a = steps_of_a(g, threads, scratch);
  float* all_between = scratch + (in_place(g.k) ? 0 : packed_a_floats(g.m, steps));
  const std::int64_t between_each = between_floats(g.m, g.n, g.k);
  float* buffers = all_between + threads.threads() * between_each;
  const auto run = [&](Range share, Range columns, const float* packed, int thread) {
    run_block(g, a, share, columns, packed, packed ? nullptr : buffers + thread * kChunkFloats,
              all_between + thread * between_each);
  };
  if (g.m <= kRowBlock && panels >= threads.threads()) {
    threads.run(panels, [&](std::int64_t first, std::int64_t last, int thread) {
      run({0, g.m}, {first, last}, nullptr, thread);
    });
  } else if (g.m <= kRowBlock) {
    threads.run(g.m, [&](std::int64_t first, std::int64_t last, int thread) {
      run({first, last}, {0, panels}, nullptr, thread);
    });
  } else {
    pack(g, threads, buffers);
    threads.run(g.m, [&](std::int64_t first, std::int64_t last, int thread) {
      run({first, last}, {0, panels}, buffers, thread);
    });
  }
}

// Packs the columns of one tile as [steps][columns of the tile] and sums them; the sums cost
// nothing extra.
template <int kVectors>
void pack_tile(const GemmOuter& g, std::int64_t column, std::int64_t width, float* to) {
  const Stored* from = static_cast<const Stored*>(g.a) + column;
  const auto left = [=](int v) { return smaller(larger(width - v * kWidth, 0), kWidth); };
  Floats sums[kVectors];
  for (int v = 0; v < kVectors; ++v)
    sums[v] = g.add && g.a_sums != nullptr ? load_partial(g.a_sums + column + v * kWidth, left(v))
                                           : zero();
  // The last steps must not write beyond the tile, because that memory may belong to another
  // thread.
  const std::int64_t steps = steps_of(g.k), free_steps = larger(0, steps - kWidth);
  for (std::int64_t step = 0; step < steps; ++step, from += kTerms * g.a_stride, to += width)
    for (int v = 0; v < kVectors; ++v) {
      const Stored* row = from + v * kWidth;
      const Stored* second = kPairs && step * kTerms + 1 < g.k ? row + g.a_stride : nullptr;
      sums[v] += load_partial(row, left(v));
      if (second != nullptr) sums[v] += load_partial(second, left(v));
      const Floats packed = step_of_rows(row, second, left(v));
      if (step < free_steps) {
        store(to + v * kWidth, packed);
      } else {
        store_partial(to + v * kWidth, packed, left(v));
      }
    }
  for (int v = 0; v < kVectors && g.a_sums != nullptr; ++v)
    store_partial(g.a_sums + column + v * kWidth, sums[v], left(v));
}

// Packs tiles [first, last) of a's columns.
void pack_a(const GemmOuter& g, const EvenCut& tiles, std::int64_t first, std::int64_t last,
            float* packed) {
  static_assert(kMaxStridedRows <= 2 * kWidth);
  for (std::int64_t t = first; t < last; ++t)
    (tiles.size(t) > kWidth ? pack_tile<2> : pack_tile<1>)(g, tiles.start(t), tiles.size(t),
                                                           packed + tiles.start(t) * steps_of(g.k));
}

void run_outer(const GemmOuter& g, const EvenCut& tiles, Range tile_range, Range panels,
               const float* packed, float* buffer) {
  const TileScope scope;
  const EvenCut chunks(steps_of(g.k), kStepsInCache);
  for (std::int64_t chunk = 0; chunk < chunks.pieces; ++chunk) {
    const std::int64_t first_step = chunks.start(chunk), steps = chunks.size(chunk),
                       first = first_step * kTerms, terms = smaller(steps * kTerms, g.k - first);
    for (std::int64_t panel = panels.first; panel < panels.last; ++panel) {
      const std::int64_t column = panel * kPanel;
      TileOutput out{nullptr, smaller(g.n - column, kPanel), g.add || chunk > 0, nullptr, false};
      pack_rows(static_cast<const Stored*>(g.b) + first * g.b_stride + column, g.b_stride, terms,
                out.columns, buffer);
      for (std::int64_t t = tile_range.first; t < tile_range.last; ++t) {
        const std::int64_t width = tiles.size(t);
        out.c = g.c + tiles.start(t) * g.c_stride + column;
        const AdjacentRows tile{packed + tiles.start(t) * steps_of(g.k) + first_step * width,
                                nullptr, width, steps, g.c_stride};
        adjacent_tile_for<false>(width, out.columns)(tile, buffer, out);
      }
    }
  }
}

std::int64_t outer_scratch(std::int64_t m, std::int64_t, std::int64_t k, int threads) {
  return packed_a_floats(m, steps_of(k)) + threads * kChunkFloats;
}

void outer(const GemmOuter& g, ThreadPool& threads, float* scratch) {
  const EvenCut tiles(g.m, kMaxStridedRows);
  const std::int64_t panels = panel_count(g.n);
  float* buffers = scratch + packed_a_floats(g.m, steps_of(g.k));
  threads.run(tiles.pieces, [&](std::int64_t first, std::int64_t last, int) {
    pack_a(g, tiles, first, last, scratch);
  });
  const bool by_panels = panels >= threads.threads();
  threads.run(
      by_panels ? panels : tiles.pieces, [&](std::int64_t first, std::int64_t last, int thread) {
        const Range share{first, last};
        run_outer(g, tiles, by_panels ? Range{0, tiles.pieces} : share,
                  by_panels ? share : Range{0, panels}, scratch, buffers + thread * kChunkFloats);
      });
}

}  // namespace

const GemmTable gemm_table{rows_scratch, rows, outer_scratch, outer};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
