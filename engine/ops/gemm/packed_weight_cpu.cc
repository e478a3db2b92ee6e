// Products of a few rows with a packed weight: bound by reading the weight once from memory.
//
// The weight is packed in panels of kPanel columns, as for other products, and each thread reads a
// contiguous range of it from the first byte to the last, prefetched across the ends of pages,
// where hardware prefetchers stop. In bf16 a word of 32 bits holds two columns, kWidth apart, so
// that a shift and a mask widen them on every instruction set. Chunks and the order of sums are
// those of gemm_cpu.cc, and so are the bits.
#include "engine/ops/gemm/packed_weight_cpu.h"

#include "engine/ops/gemm/gemm_tiles.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

typedef std::uint32_t Words __attribute__((vector_size(kVectorBytes)));

constexpr std::int64_t kBytesAhead = 4096;
constexpr std::uint32_t kHighHalf = 0xFFFF0000u;

// A step of a panel: the elements of its columns at one term of the sum.
struct FloatStep {
  Floats columns[2];

  ENGINE_INLINE Floats column(int vector) const { return columns[vector]; }
  ENGINE_INLINE static FloatStep of(Floats low, Floats high) { return {{low, high}}; }
};
struct HalfStep {
  Words words;  // columns of the first vector are in the low halves

  ENGINE_INLINE Floats column(int vector) const {
    return reinterpret_cast<Floats>(vector == 0 ? words << 16 : words & kHighHalf);
  }
  // To nearest, with ties to even. NaN stays NaN.
  ENGINE_INLINE static Words rounded(Floats values) {
    const Words bits = reinterpret_cast<Words>(values);
    const Words even = bits + 0x7FFFu + ((bits >> 16) & 1u);
    const Ints nan = reinterpret_cast<Ints>((bits & 0x7FFFFFFFu) > 0x7F800000u);
    return reinterpret_cast<Words>(select(nan, reinterpret_cast<Floats>(bits | 0x400000u),
                                          reinterpret_cast<Floats>(even))) &
           kHighHalf;
  }
  ENGINE_INLINE static HalfStep of(Floats low, Floats high) {
    return {(rounded(low) >> 16) | rounded(high)};
  }
};

template <class Step>
std::int64_t bytes(std::int64_t n, std::int64_t k) {
  return panel_count(n) * k * static_cast<std::int64_t>(sizeof(Step));
}

template <class Step>
void pack_panel(const float* weight, std::int64_t columns, std::int64_t k, Step* to) {
  constexpr std::int64_t kTerms = 64;
  alignas(64) float block[kTerms * kPanel];
  for (std::int64_t first = 0; first < k; first += kTerms) {
    const std::int64_t count = smaller(kTerms, k - first);
    pack_steps(weight + first, k, count, columns, kPanel, block);
    for (std::int64_t i = 0; i < count; ++i)
      to[first + i] = Step::of(load(block + i * kPanel), load(block + i * kPanel + kWidth));
  }
}

template <class Step>
void pack(const float* weight, std::int64_t n, std::int64_t k, ThreadPool& threads, void* to) {
  threads.run(panel_count(n), [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t panel = first; panel < last; ++panel)
      pack_panel(weight + panel * kPanel * k, smaller(n - panel * kPanel, kPanel), k,
                 static_cast<Step*>(to) + panel * k);
  });
}

// The rows of a and c of a tile, and the steps of one chunk.
template <class Step>
struct Tile {
  const float* a;
  std::int64_t a_stride, c_stride, steps;
  const Step* panel;
};

template <int kRows, class Step>
void run_tile(const Tile<Step>& tile, const TileOutput& out) {
  Floats sum[kRows][2];
  ENGINE_UNROLL
  for (int i = 0; i < kRows; ++i) start_row<kRows, 2>(sum, i, out.c + i * tile.c_stride);
  for (std::int64_t k = 0; k < tile.steps; ++k) {
    const auto* ahead = reinterpret_cast<const char*>(tile.panel + k) + kBytesAhead;
    ENGINE_UNROLL
    for (unsigned line = 0; line < sizeof(Step); line += 64) __builtin_prefetch(ahead + line);
    const Step step = tile.panel[k];
    ENGINE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const Floats element = broadcast(tile.a[i * tile.a_stride + k]);
      sum[i][0] = sum[i][0] + element * step.column(0);
      sum[i][1] = sum[i][1] + element * step.column(1);
    }
  }
  finish_tile(sum, out, [c = out.c, stride = tile.c_stride](int i) { return c + i * stride; });
}

template <class Step, int kRows = kMaxPointerRows>
auto tile_for(std::int64_t rows) {
  if constexpr (kRows > 1)
    if (rows < kRows) return tile_for<Step, kRows - 1>(rows);
  return run_tile<kRows, Step>;
}

template <class Step>
void multiply_panel(const PackedProduct& p, std::int64_t panel) {
  const EvenCut chunks(p.k, kStepsInCache), tiles(p.m, kMaxPointerRows);
  const std::int64_t column = panel * kPanel;
  for (std::int64_t chunk = 0; chunk < chunks.pieces; ++chunk) {
    const std::int64_t first = chunks.start(chunk);
    for (std::int64_t t = 0; t < tiles.pieces; ++t) {
      const std::int64_t row = tiles.start(t);
      TileOutput out{p.c + row * p.n + column, smaller(p.n - column, kPanel), false,
                     p.bias == nullptr ? nullptr : p.bias + column, p.relu};
      out.set_chunk(chunk, chunks.pieces, nullptr);
      tile_for<Step>(tiles.size(t))(
          Tile<Step>{p.a + row * p.k + first, p.k, p.n, chunks.size(chunk),
                     static_cast<const Step*>(p.weight) + panel * p.k + first},
          out);
    }
  }
}

template <class Step>
void multiply(const PackedProduct& product, ThreadPool& threads) {
  if (product.m == 0) return;
  threads.run(panel_count(product.n), [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t panel = first; panel < last; ++panel) multiply_panel<Step>(product, panel);
  });
}

template <class Step>
constexpr PackedWeightKernels kKernels{bytes<Step>, pack<Step>, multiply<Step>};

}  // namespace

const PackedWeightTable packed_weight_table{kKernels<FloatStep>, kKernels<HalfStep>};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
