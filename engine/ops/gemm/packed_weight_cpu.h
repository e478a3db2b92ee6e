// Products of a few rows with a weight that is packed once and used many times, on the CPU.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"

namespace engine::ops {

// c [m, n] = relu?(a [m, k] * the transpose of the weight [n, k] + bias [n], or no bias).
struct PackedProduct {
  std::int64_t m, n, k;
  const float* a;
  const void* weight;  // packed
  float* c;
  const float* bias;
  bool relu;
};

// Kernels for one storage type of packed weights. The sums of an element of c depend only on k:
// neither on the number of threads nor on the other rows.
struct PackedWeightKernels {
  // Bytes of the packed weight; it is 64-byte aligned.
  std::int64_t (*bytes)(std::int64_t n, std::int64_t k);
  void (*pack)(const float* weight, std::int64_t n, std::int64_t k, ThreadPool& threads, void* to);
  void (*multiply)(const PackedProduct& product, ThreadPool& threads);
};

struct PackedWeightTable {
  // In f32 a product has the bits of GemmTable::rows; in bf16 it has those of the weight rounded to
  // nearest even.
  PackedWeightKernels f32, bf16;
};

ENGINE_ISA_TABLE(PackedWeightTable, packed_weight_table)

}  // namespace engine::ops
