// The innermost loop of bf16 products with AMX. It replaces those of gemm_tiles.h, whose packing
// and blocking for AVX512_BF16 stays the same: a panel of B, whose step holds a pair of terms for
// each column, is the layout that the instruction needs for its second operand.
//
// A tile is 32 rows x 2 vectors of columns. Four of the eight registers are sums of 16 x 16, two
// hold rows of A and two columns of B. This is the only split with which every loaded register is
// used twice. 16 steps take 4 products of 16 cycles each and 4 loads of 16 rows, at two rows per
// cycle 8 cycles each. The loads take half the time of the products, with which they overlap. Four
// sums also cover the latency of a product, 52 cycles (Intel 64 and IA-32 Architectures
// Optimization Reference Manual, chapter on AMX).
//
// A configuration takes 204 cycles (same manual), so a thread keeps its configuration as long as
// the number of rows of its tiles does not change, and releases it at the end of its share
// (TileScope). It covers only the rows that exist, since fewer take fewer cycles; the last steps
// are padded to 16 with zeros. Rows of A are read in place if they are a constant distance apart;
// others are copied, and adjacent rows (AdjacentRows) are transposed, since the instruction has no
// transposed operand.
//
// Cycle counts come from the manual. Tests have run on such a CPU; its speed is not measured.
#pragma once

#include "engine/ops/gemm/amx_registers.h"
#include "engine/ops/gemm/tile_operands.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

inline constexpr int kTileRows = 16, kTileSteps = 16;
static_assert(kWidth == kTileRows && kMaxPointerRows == 2 * kTileRows);

inline thread_local std::int64_t configured_rows =
    0;  // rows of this thread's configuration; 0: none

struct TileScope {
  TileScope() = default;
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
  ~TileScope() {
    if (configured_rows > 0) release_tiles();
    configured_rows = 0;
  }
};

template <int kNumber>
struct TileNumber {};

// A tile of `rows` rows and kVectors vectors of columns, of the `stored` vectors of the panel.
template <class Rows>
struct AmxTile {
  std::int64_t rows, vectors, stored;

  template <class C = float>
  void operator()(const Rows& a, const float* b, const TileOutputOf<C>& out) const {
    vectors == 2 ? multiply<2>(a, b, out) : multiply<1>(a, b, out);
  }

 private:
  // 16 steps of all rows, with `stride` floats between rows.
  struct Block {
    const float* start;
    std::int64_t stride;
  };

  // Registers 0 to 3: sums; 4 and 5: A; 6 and 7: B.
  TileShapes shapes() const {
    TileShapes all;
    const auto set = [&](int tile, std::int64_t tile_rows) {
      all.rows[tile] = static_cast<std::uint8_t>(tile_rows);
      all.row_bytes[tile] = tile_rows == 0 ? 0 : kVectorBytes;
    };
    for (int half = 0; half < 2; ++half) {
      const std::int64_t here = smaller(larger(rows - half * kTileRows, 0), kTileRows);
      set(2 * half, here), set(2 * half + 1, here);
      set(4 + half, here);
      set(6 + half, kTileSteps);
    }
    return all;
  }

  // Returns steps [first, first + depth) of the rows and zeros up to 16, in `room` unless they can
  // be read in place.
  Block fetch(const PointerRows& a, std::int64_t first, std::int64_t depth, float* room) const {
    const std::int64_t* place = a.table == nullptr ? &first : a.table + first;
    if (a.table == nullptr && depth == kTileSteps)
      return {a.a + a.row[0] + first, a.row[1] - a.row[0]};
    // The places are ascending.
    const bool run = a.table == nullptr || place[depth - 1] - place[0] == depth - 1;
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* row = a.a + a.row[i];
      float* to = room + i * kTileSteps;
      if (run) {
        store(to, load_partial(row + place[0], depth));
      } else {
        for (std::int64_t k = 0; k < kTileSteps; ++k) to[k] = k < depth ? row[place[k]] : 0.f;
      }
    }
    return {room, kTileSteps};
  }
  Block fetch(const AdjacentRows& a, std::int64_t first, std::int64_t depth, float* room) const {
    const auto step = [&](std::int64_t k) {
      return a.a + (a.table == nullptr ? (first + k) * a.stride : a.table[first + k]);
    };
    for (std::int64_t i = 0; i < rows; i += kTileRows) {
      Square square{};
      for (std::int64_t k = 0; k < depth; ++k)
        square.packet[k] = load_partial(step(k) + i, smaller(rows - i, kTileRows));
      transpose_square(square);
      for (std::int64_t r = 0; r < kTileRows; ++r)
        store(room + (i + r) * kTileSteps, square.packet[r]);
    }
    return {room, kTileSteps};
  }

  // Returns `depth` steps of B and zeros up to 16, in `room` unless there are 16.
  template <int kVectors>
  const float* fetch(const float* b, std::int64_t depth, float* room) const {
    if (depth == kTileSteps) return b;
    for (std::int64_t k = 0; k < kTileSteps; ++k)
      for (std::int64_t v = 0; v < kVectors * kWidth; v += kWidth)
        store(room + k * stored * kWidth + v,
              k < depth ? load(b + k * stored * kWidth + v) : zero());
    return room;
  }

  // Calls move(register number, address of its sums) for the sums in use.
  template <int kVectors, class Move>
  ENGINE_INLINE void for_sums(float* sums, Move move) const {
    constexpr std::int64_t kHalf = kTileRows * kVectors * kWidth;
    move(TileNumber<0>{}, sums);
    if constexpr (kVectors == 2) move(TileNumber<1>{}, sums + kWidth);
    if (rows <= kTileRows) return;
    move(TileNumber<2>{}, sums + kHalf);
    if constexpr (kVectors == 2) move(TileNumber<3>{}, sums + kHalf + kWidth);
  }

  template <int kVectors>
  ENGINE_INLINE void add_block(const Block& a, const float* b) const {
    load_tile<4>(a.start, a.stride);
    load_tile<6>(b, stored * kWidth);
    add_tile_products<0, 4, 6>();
    if constexpr (kVectors == 2) {
      load_tile<7>(b + kWidth, stored * kWidth);
      add_tile_products<1, 4, 7>();
    }
    if (rows <= kTileRows) return;
    load_tile<5>(a.start + kTileRows * a.stride, a.stride);
    add_tile_products<2, 5, 6>();
    if constexpr (kVectors == 2) add_tile_products<3, 5, 7>();
  }

  template <class C>
  static C* row_of(const PointerRows& a, const TileOutputOf<C>& out, std::int64_t i) {
    return out.c + a.c_row[i];
  }
  template <class C>
  static C* row_of(const AdjacentRows& a, const TileOutputOf<C>& out, std::int64_t i) {
    return out.c + i * a.c_stride;
  }

  template <int kVectors, class C>
  void multiply(const Rows& a, const float* b, TileOutputOf<C> out) const {
    constexpr std::int64_t kColumns = kVectors * kWidth;
    alignas(64) float sums[kMaxPointerRows * kColumns], a_room[kMaxPointerRows * kTileSteps],
        b_room[kTileSteps * kPanel];
    if (configured_rows == rows) {
      for_sums<kVectors>(sums, []<int kTile>(TileNumber<kTile>, float*) { clear_tile<kTile>(); });
    } else {
      configure_tiles(shapes());
      configured_rows = rows;
    }
    for (std::int64_t k = 0; k < a.steps; k += kTileSteps) {
      const std::int64_t depth = smaller(a.steps - k, kTileSteps);
      add_block<kVectors>(fetch(a, k, depth, a_room),
                          fetch<kVectors>(b + k * stored * kWidth, depth, b_room));
    }
    for_sums<kVectors>(
        sums, []<int kTile>(TileNumber<kTile>, float* to) { store_tile<kTile>(to, kColumns); });
    for (std::int64_t i = 0; i < rows; ++i) {
      Floats sum[1][kVectors];
      for (int v = 0; v < kVectors; ++v) sum[0][v] = load(sums + i * kColumns + v * kWidth);
      finish_tile(sum, out, [=](int) { return row_of(a, out, i); });
      if (out.sums != nullptr) out.sums += kPanel;
    }
  }
};

using PointerTile = AmxTile<PointerRows>;
using AdjacentTile = AmxTile<AdjacentRows>;

// The same function as in gemm_tiles.h; the rows determine if there is a table.
template <bool kTable, class C = float>
PointerTile pointer_tile_for(std::int64_t rows, std::int64_t columns) {
  const std::int64_t vectors = columns > kWidth ? 2 : 1;
  return {rows, vectors, vectors};
}
template <bool kTable>
AdjacentTile adjacent_tile_for(std::int64_t rows, std::int64_t columns) {
  const std::int64_t vectors = columns > kWidth ? 2 : 1;
  return {rows, vectors, vectors};
}
inline PointerTile half_tile_for(std::int64_t rows) { return {rows, 1, 2}; }

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
