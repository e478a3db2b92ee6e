// Matrix products in float64: Eigen's products over blocks of rows of the result, divided among the
// threads. The blocks depend only on the shape, so no result depends on the number of threads.
#include "engine/ops/gemm/gemm_f64_cpu.h"

#include "engine/ops/common/eigen_maps.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kBlockRows = 64;

// Calls body(first row, rows) for blocks of rows of c.
template <class Body>
void run_blocks(std::int64_t m, ThreadPool& threads, Body body) {
  threads.run((m + kBlockRows - 1) / kBlockRows, [=](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin * kBlockRows; row < smaller(end * kBlockRows, m);
         row += kBlockRows)
      body(row, smaller(kBlockRows, m - row));
  });
}

template <class Product>
void put(bool add, Rows c, const Product& product) {
  if (add) {
    c.noalias() += product;
  } else {
    c.noalias() = product;
  }
}

void rows(const GemmSizesF64& s, const double* a, const double* b, bool b_transposed, double* c,
          ThreadPool& threads) {
  const GemmSizesF64 z = s;
  run_blocks(z.m, threads, [=](std::int64_t row, std::int64_t count) {
    const ConstRows part = rows_at(a + row * z.k, count, z.k, z.k);
    const Rows to = rows_at(c + row * z.n, count, z.n, z.n);
    if (b_transposed) {
      put(z.add, to, part * rows_at(b, z.n, z.k, z.k).transpose());
    } else {
      put(z.add, to, part * rows_at(b, z.k, z.n, z.n));
    }
  });
}

void outer(const GemmSizesF64& s, const double* a, const double* b, double* c,
           ThreadPool& threads) {
  const GemmSizesF64 z = s;
  run_blocks(z.m, threads, [=](std::int64_t row, std::int64_t count) {
    put(z.add, rows_at(c + row * z.n, count, z.n, z.n),
        rows_at(a + row, z.k, count, z.m).transpose() * rows_at(b, z.k, z.n, z.n));
  });
}

}  // namespace

const GemmF64Table gemm_f64_table{rows, outer};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
