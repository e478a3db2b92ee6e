// Matrix products on the CPU, row-major, for the dense layer: of floats, or of operands stored in
// bf16.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/bf16_dispatch.h"

namespace engine::ops {

// c [m, n] = relu?(a [m, k] * B + bias), or c += a * B. B is b [k, n], or the transpose of b [n,
// k]. Strides are in elements between rows. bias [n] or nullptr; REQUIRES: with `add` no bias and
// no relu. a and c have the table's storage type, b and bias are floats.
struct GemmRows {
  std::int64_t m, n, k;
  const void* a;
  std::int64_t a_stride;
  const float* b;
  std::int64_t b_stride;
  bool b_transposed;
  void* c;
  std::int64_t c_stride;
  bool add;
  const float* bias;
  bool relu;
};

// c [m, n] = (or +=) the transpose of a [k, m] * b [k, n]; a_sums [m] = (or +=) the column sums of
// a, unless nullptr. a and b have the table's storage type.
struct GemmOuter {
  std::int64_t m, n, k;
  const void* a;
  std::int64_t a_stride;
  const void* b;
  std::int64_t b_stride;
  float* c;
  std::int64_t c_stride;
  bool add;
  float* a_sums;
};

// `scratch` is 64-byte aligned and has the number of floats that x_scratch returns for this or any
// larger problem. Each element of c is summed in an order that depends only on k: the bits do not
// depend on the number of threads.
struct GemmTable {
  std::int64_t (*rows_scratch)(std::int64_t m, std::int64_t n, std::int64_t k, int threads);
  void (*rows)(const GemmRows& gemm, ThreadPool& threads, float* scratch);
  std::int64_t (*outer_scratch)(std::int64_t m, std::int64_t n, std::int64_t k, int threads);
  void (*outer)(const GemmOuter& gemm, ThreadPool& threads, float* scratch);
};

ENGINE_ISA_TABLE(GemmTable, gemm_table)

// Operands are rounded to bf16; c, bias and a_sums, which sums the unrounded floats, are not.
ENGINE_BF16_TABLE(GemmTable, gemm_table)
ENGINE_STORED_PRODUCTS(GemmTable, gemm_table)

}  // namespace engine::ops
