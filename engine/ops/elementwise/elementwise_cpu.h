// The kernel tables of the elementwise operators on the CPU; elementwise.cc calls the one of the
// chosen instruction set.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/core/thread_pool.h"
#include "engine/ops/common/bf16_dispatch.h"

namespace engine::ops {

// n samples of `count` elements each; an element is kept if its word's upper 24 bits reach
// `threshold`.
struct DropoutSizes {
  std::int64_t n, count;
  std::uint64_t key, epoch;
  std::uint32_t threshold;
  float factor;  // scales the kept elements
};

// Operands are as in elementwise.h, with `count` elements each. Results do not depend on the number
// of threads.
struct ElementwiseTable {
  void (*relu_forward)(const TensorView& x, std::int64_t count, const TensorView& y,
                       ThreadPool& threads);
  void (*relu_backward)(const TensorView& y, const TensorView& dy, std::int64_t count,
                        const TensorView& dx, bool add, ThreadPool& threads);
  void (*add_forward)(const TensorView& a, const TensorView& b, bool relu, std::int64_t count,
                      const TensorView& y, ThreadPool& threads);
  void (*copy_or_add)(const TensorView& from, std::int64_t count, const TensorView& to, bool add,
                      ThreadPool& threads);
  void (*dropout)(const DropoutSizes& sizes, const std::int64_t* sample_ids, const TensorView& from,
                  const TensorView& to, bool add, ThreadPool& threads);
  // Writes the transpose of each of n samples, which are matrices [rows, columns].
  void (*transpose)(const TensorView& from, std::int64_t n, std::int64_t rows, std::int64_t columns,
                    const TensorView& to, bool add, ThreadPool& threads);
  // Convert floats to the table's storage type and back.
  void (*narrow)(const TensorView& from, std::int64_t count, const TensorView& to,
                 ThreadPool& threads);
  void (*widen)(const TensorView& from, std::int64_t count, const TensorView& to,
                ThreadPool& threads);
};

ENGINE_ISA_TABLE(ElementwiseTable, elementwise_table)
ENGINE_STORED_TABLE(ElementwiseTable, elementwise_table)

}  // namespace engine::ops
