// Ordered products in float32: tiles of 4 rows and two vectors, whose sums stay in registers. Bound
// by multiplications and additions, which are not fused (CMakeLists.txt).
#include "engine/ops/optim_step/orthogonalize_cpu.h"

#include "engine/ops/common/flat_loops.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kRows = 4, kColumns = 2 * kWidth;
constexpr std::int64_t kRowBlock = 32;  // rows that a thread processes at once

template <class Left, class Right>
ENGINE_INLINE void store_row(const OrderedProduct<float>& p, std::int64_t at, Floats left,
                             Floats right, Left low, Right high) {
  left *= p.product;
  right *= p.product;
  if (p.d != nullptr) {
    left += p.own * low.load_from(p.d + at);
    right += p.own * high.load_from(p.d + at + kWidth);
  }
  low.store_to(p.c + at, left);
  high.store_to(p.c + at + kWidth, right);
}

// Computes rows [i, i + rows) of columns [j, j + kColumns); `low` and `high` select the existing
// columns. Missing rows are computed like the last one, and not stored.
template <class Left, class Right>
ENGINE_INLINE void tile(const OrderedProduct<float>& p, std::int64_t i, std::int64_t rows,
                        std::int64_t j, Left low, Right high) {
  const float* a[kRows];
  for (std::int64_t r = 0; r < kRows; ++r) a[r] = p.a + (i + smaller(r, rows - 1)) * p.k;
  Floats left[kRows] = {}, right[kRows] = {};
  for (std::int64_t k = 0; k < p.k; ++k) {
    const Floats b0 = low.load_from(p.b + k * p.n + j),
                 b1 = high.load_from(p.b + k * p.n + j + kWidth);
    for (std::int64_t r = 0; r < kRows; ++r) {
      left[r] += a[r][k] * b0;
      right[r] += a[r][k] * b1;
    }
  }
  for (std::int64_t r = 0; r < rows; ++r)
    store_row(p, (i + r) * p.n + j, left[r], right[r], low, high);
}

void run(const OrderedProduct<float>& product, ThreadPool& threads) {
  const OrderedProduct<float> p = product;
  const std::int64_t strips = (p.n + kColumns - 1) / kColumns,
                     blocks = (p.m + kRowBlock - 1) / kRowBlock;
  threads.run(strips * blocks, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t u = first; u < last; ++u) {
      const std::int64_t j = u / blocks * kColumns, start = u % blocks * kRowBlock,
                         end = smaller(start + kRowBlock, p.m), here = p.n - j;
      for (std::int64_t i = start; i < end; i += kRows) {
        const std::int64_t rows = smaller(kRows, end - i);
        if (here >= kColumns)
          tile(p, i, rows, j, AllLanes{}, AllLanes{});
        else
          tile(p, i, rows, j, SomeLanes{smaller(here, kWidth)},
               SomeLanes{larger(here - kWidth, 0)});
      }
    }
  });
}

}  // namespace

constexpr OrderedProductTable ordered_product_table{run};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
