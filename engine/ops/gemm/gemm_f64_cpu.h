// Matrix products in float64 on the CPU, row-major, for the dense layer.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"

namespace engine::ops {

// The sizes of c [m, n] = (or, with `add`, +=) A * B, where A has k columns. Rows are contiguous.
struct GemmSizesF64 {
  std::int64_t m, n, k;
  bool add;
};

// rows: A is a [m, k], B the transpose of b [n, k] or b [k, n]. outer: A is the transpose of
// a [k, m], B is b [k, n]. No result depends on the number of threads.
struct GemmF64Table {
  void (*rows)(const GemmSizesF64& sizes, const double* a, const double* b, bool b_transposed,
               double* c, ThreadPool& threads);
  void (*outer)(const GemmSizesF64& sizes, const double* a, const double* b, double* c,
                ThreadPool& threads);
};

ENGINE_ISA_TABLE(GemmF64Table, gemm_f64_table)

}  // namespace engine::ops
