// The two innermost loops of all matrix products and convolutions: a tile of the result stays in
// registers while a loop iterates over the summed dimension. Only for sources compiled once per
// instruction set.
//
// Tile: kMaxRows rows x 2 vectors of columns. AVX2 has 16 registers: 6 x 2 sums, 2 vectors of B, 1
// broadcast element of A; each step has 12 FMAs (6 cycles at two per cycle) and 8 loads (4 cycles),
// and 12 independent sums cover the latency of 4 cycles x 2. AVX-512 has 32 registers: up to 14 x 2
// sums if rows are one base and a constant stride apart, and 8 x 2 if each row has its own pointer,
// because x86-64 has only 16 of those. B is packed in panels: column panel p holds, for each step,
// its 2 * kWidth columns contiguously (the last panel only kWidth if that is enough); columns
// beyond the matrix are 0. Method: Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication", ACM TOMS 34(3), 2008; the row pointers are those of indirect convolution,
// Dukhan, arXiv 1907.02129. In bf16 on CPUs with AMX, amx_tiles.h replaces these two loops.
#pragma once

#include "engine/ops/gemm/tile_operands.h"
#if defined(ENGINE_AMX_TILES)
#include "engine/ops/gemm/amx_tiles.h"
#endif

namespace engine::ops::ENGINE_ISA_NAMESPACE {

#if !defined(ENGINE_AMX_TILES)
// The scope of a thread's share of a product: its register state ends with it.
struct TileScope {
  ENGINE_INLINE TileScope() {}
};

// `kStored` is the number of vectors of the panel at each step, of which the tile uses kVectors.
template <int kRows, int kVectors, bool kTable, int kStored = kVectors, class C = float>
void pointer_tile(const PointerRows& rows, const float* b, const TileOutputOf<C>& out) {
  Floats sum[kRows][kVectors];
  const float* a[kRows];
  ENGINE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    start_row<kRows, kVectors>(sum, i, out.c + rows.c_row[i]);
    a[i] = rows.a + rows.row[i];
  }
  const std::int64_t* table = rows.table;
  for (std::int64_t k = 0; k < rows.steps; ++k) {
    const std::int64_t place = kTable ? table[k] : k;
    Floats column[kVectors];
    ENGINE_UNROLL
    for (int v = 0; v < kVectors; ++v) column[v] = load(b + v * kWidth);
    ENGINE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const Floats element = broadcast(a[i][place]);
      ENGINE_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[i][v] = add_products(sum[i][v], element, column[v]);
    }
    b += kStored * kWidth;
  }
  finish_tile(sum, out, [c = out.c, to = rows.c_row](int i) { return c + to[i]; });
}

template <int kRows, int kVectors, bool kTable>
void adjacent_tile(const AdjacentRows& rows, const float* b, const TileOutput& out) {
  Floats sum[kRows][kVectors];
  ENGINE_UNROLL
  for (int i = 0; i < kRows; ++i) start_row<kRows, kVectors>(sum, i, out.c + i * rows.c_stride);
  const float* a = rows.a;
  const float* ahead = rows.ahead == nullptr ? b : rows.ahead;
  for (std::int64_t k = 0; k < rows.steps; ++k) {
    if constexpr (kTable) a = rows.a + rows.table[k];
    if constexpr (kVectors == 2) __builtin_prefetch(ahead, 0, 2), ahead += rows.ahead_stride;
    Floats column[kVectors];
    ENGINE_UNROLL
    for (int v = 0; v < kVectors; ++v) column[v] = load(b + v * kWidth);
    ENGINE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const Floats element = broadcast(a[i]);
      ENGINE_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[i][v] = add_products(sum[i][v], element, column[v]);
    }
    b += kVectors * kWidth;
    if constexpr (!kTable) a += rows.stride;
  }
  finish_tile(sum, out, [c = out.c, stride = rows.c_stride](int i) { return c + i * stride; });
}

template <class Rows, class C>
using TileOf = void (*)(const Rows&, const float*, const TileOutputOf<C>&);
using PointerTile = TileOf<PointerRows, float>;
using AdjacentTile = TileOf<AdjacentRows, float>;

// Returns the tile function for a number of rows and for the number of vectors of the panel's
// columns.
template <bool kTable, class C = float, int kRows = kMaxPointerRows>
TileOf<PointerRows, C> pointer_tile_for(std::int64_t rows, std::int64_t columns) {
  if constexpr (kRows > 1)
    if (rows < kRows) return pointer_tile_for<kTable, C, kRows - 1>(rows, columns);
  return columns > kWidth ? pointer_tile<kRows, 2, kTable, 2, C>
                          : pointer_tile<kRows, 1, kTable, 1, C>;
}

// The same for one vector of a panel with two vectors.
template <int kRows = kMaxPointerRows>
PointerTile half_tile_for(std::int64_t rows) {
  if constexpr (kRows > 1)
    if (rows < kRows) return half_tile_for<kRows - 1>(rows);
  return pointer_tile<kRows, 1, false, 2>;
}

template <bool kTable, int kRows = kMaxStridedRows>
AdjacentTile adjacent_tile_for(std::int64_t rows, std::int64_t columns) {
  if constexpr (kRows > 1)
    if (rows < kRows) return adjacent_tile_for<kTable, kRows - 1>(rows, columns);
  return columns > kWidth ? adjacent_tile<kRows, 2, kTable> : adjacent_tile<kRows, 1, kTable>;
}
#endif

// Divides `count` into the fewest pieces of at most `largest`, as evenly as possible: piece i is
// [start(i), start(i + 1)). A count of 0 makes one empty piece.
struct EvenCut {
  std::int64_t pieces, least, longer;  // the first `longer` pieces have least + 1
  ENGINE_INLINE EvenCut(std::int64_t count, std::int64_t largest)
      : pieces(count > 0 ? (count + largest - 1) / largest : 1),
        least(count / pieces),
        longer(count % pieces) {}
  ENGINE_INLINE std::int64_t start(std::int64_t i) const { return i * least + smaller(i, longer); }
  ENGINE_INLINE std::int64_t size(std::int64_t i) const { return least + (i < longer ? 1 : 0); }
};

ENGINE_INLINE std::int64_t panel_count(std::int64_t columns) {
  return (columns + kPanel - 1) / kPanel;
}
// The stored number of columns of panel `panel`, including padding.
ENGINE_INLINE std::int64_t panel_width(std::int64_t columns, std::int64_t panel) {
  return columns - panel * kPanel > kWidth ? kPanel : kWidth;
}

// The number of rows ahead that packing prefetches: their stride is too large for hardware
// prefetchers.
inline constexpr std::int64_t kRowsAhead = 12;

template <int kVectors, class T>
ENGINE_INLINE void pack_rows_of(const T* b, std::int64_t stride, std::int64_t terms,
                                std::int64_t columns, float* panel) {
  const bool whole = columns == kVectors * kWidth;
  for (std::int64_t k = 0; k < terms; k += kTerms) {
    ENGINE_UNROLL
    for (int i = 0; i < kTerms; ++i)
      __builtin_prefetch(b + smaller(kRowsAhead + i, terms - 1 - k) * stride);
    const T* second = kPairs && k + 1 < terms ? b + stride : nullptr;
    ENGINE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t left = whole ? kWidth : smaller(larger(columns - v * kWidth, 0), kWidth);
      store(panel + v * kWidth,
            step_of_rows(b + v * kWidth, second == nullptr ? nullptr : second + v * kWidth, left));
    }
    panel += kVectors * kWidth, b += kTerms * stride;
  }
}

// Packs `terms` rows of `columns` elements, `stride` apart, into a panel of steps_of(terms).
template <class T>
ENGINE_INLINE void pack_rows(const T* b, std::int64_t stride, std::int64_t terms,
                             std::int64_t columns, float* panel) {
  if (columns > kWidth) {
    pack_rows_of<2>(b, stride, terms, columns, panel);
  } else {
    pack_rows_of<1>(b, stride, terms, columns, panel);
  }
}

// Packs from contiguous columns of steps: column j at step k is b[j * stride + k]. `width` is the
// panel's.
inline void pack_steps(const float* b, std::int64_t stride, std::int64_t steps,
                       std::int64_t columns, std::int64_t width, float* panel) {
  for (std::int64_t j = 0; j < width; j += kWidth) {
    const float* from = b + j * stride;
    float* to = panel + j;
    std::int64_t k = 0;
    if (j + kWidth <= columns) {
      for (; k + 4 <= steps; k += 4, from += 4, to += 4 * width) {
        Floats quad[4];  // lane g * 4 + i of quad[r] is step k + i of column j + g * 4 + r
        for (int r = 0; r < 4; ++r) quad[r] = load_quads(from + r * stride, 4 * stride);
        transpose_quads(quad[0], quad[1], quad[2], quad[3]);
        for (int r = 0; r < 4; ++r) store(to + r * width, quad[r]);
      }
    }
    for (; k < steps; ++k, ++from, to += width)
      for (int i = 0; i < kWidth; ++i) to[i] = j + i < columns ? from[i * stride] : 0.f;
  }
}

// The same as pack_rows for contiguous columns: term k of column j is b[j * stride + k].
inline void pack_columns(const float* b, std::int64_t stride, std::int64_t terms,
                         std::int64_t columns, std::int64_t width, float* panel) {
  if constexpr (!kPairs) return pack_steps(b, stride, terms, columns, width, panel);
  constexpr std::int64_t kBlock = 64;  // steps that are rounded together: 8 KB, which stay in L1
  alignas(64) float block[kPanel * kBlock];
  for (std::int64_t first = 0; first < terms; first += kTerms * kBlock) {
    const std::int64_t count = smaller(terms - first, kTerms * kBlock);
    for (std::int64_t j = 0; j < columns; ++j)
      copy_steps(b + j * stride + first, count, block + j * kBlock);
    pack_steps(block, kBlock, steps_of(count), columns, width, panel + first / kTerms * width);
  }
}

// Copies `count` <= 2 * kWidth floats; may write up to kWidth - 1 floats beyond them.
ENGINE_INLINE void copy_few(float* to, const float* from, std::int64_t count) {
  store(to, load_partial(from, smaller(count, kWidth)));
  if (count > kWidth) store(to + kWidth, load_partial(from + kWidth, count - kWidth));
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
