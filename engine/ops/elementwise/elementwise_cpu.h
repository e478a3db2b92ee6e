// Elementwise kernels in float32 on the CPU: what elementwise.cc calls for the chosen instruction
// set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"

namespace engine::ops {

// n samples of `count` elements each; an element is kept when its word's upper 24 bits reach
// `threshold`.
struct DropoutSizes {
  std::int64_t n, count;
  std::uint64_t key, epoch;
  std::uint32_t threshold;
  float factor;  // of what is kept
};

// Operands as in elementwise.h. Results do not depend on the number of threads.
struct ElementwiseTable {
  void (*relu_forward)(const float* x, std::int64_t count, float* y, ThreadPool& threads);
  void (*relu_backward)(const float* y, const float* dy, std::int64_t count, float* dx, bool add,
                        ThreadPool& threads);
  void (*add_forward)(const float* a, const float* b, bool relu, std::int64_t count, float* y,
                      ThreadPool& threads);
  void (*copy_or_add)(const float* from, std::int64_t count, float* to, bool add,
                      ThreadPool& threads);
  void (*dropout)(const DropoutSizes& sizes, const std::int64_t* sample_ids, const float* from,
                  float* to, bool add, ThreadPool& threads);
  // Each of n samples is a matrix [rows, columns]; its transpose is written.
  void (*transpose)(const float* from, std::int64_t n, std::int64_t rows, std::int64_t columns,
                    float* to, bool add, ThreadPool& threads);
};

ENGINE_ISA_TABLE(ElementwiseTable, elementwise_table)

}  // namespace engine::ops
