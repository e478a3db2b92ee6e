// Matrix products on the CPU, row-major, for the dense layer: of floats, or of what is stored in
// bf16.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/bf16_dispatch.h"

namespace engine::ops {

// c [m, n] = relu?(a [m, k] * B + bias), or c += a * B. B is b [k, n], or the transpose of b [n,
// k]. Strides are in elements between rows. bias [n] or nullptr; REQUIRES: with `add` no bias and
// no relu. a and c are what the table is for, b and bias floats.
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
// a, unless nullptr. a and b are what the table is for.
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

// `scratch`: 64-byte aligned, as many floats as x_scratch says for this or any larger problem. Each
// element of c is summed in an order that depends on k alone: the bits do not depend on the number
// of threads.
struct GemmTable {
  std::int64_t (*rows_scratch)(std::int64_t m, std::int64_t n, std::int64_t k, int threads);
  void (*rows)(const GemmRows& gemm, ThreadPool& threads, float* scratch);
  std::int64_t (*outer_scratch)(std::int64_t m, std::int64_t n, std::int64_t k, int threads);
  void (*outer)(const GemmOuter& gemm, ThreadPool& threads, float* scratch);
};

ENGINE_ISA_TABLE(GemmTable, gemm_table)

// Operands are rounded to bf16; c, bias and a_sums, which are those of the floats, are not.
ENGINE_BF16_TABLE(GemmTable, gemm_table)
ENGINE_STORED_PRODUCTS(GemmTable, gemm_table)

}  // namespace engine::ops
