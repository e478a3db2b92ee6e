// The kernel tables of products on the CPU; multiply.cc calls the one of the chosen instruction
// set.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/core/thread_pool.h"
#include "engine/ops/common/bf16_dispatch.h"

namespace engine::ops {

// One factor is [n, pixels, channels], the other [n, channels].
struct MultiplySizes {
  std::int64_t n, pixels, channels;
};

// Results do not depend on the number of threads.
struct MultiplyTable {
  // to = wide * narrow, the shape of `wide`.
  void (*scale)(const TensorView& wide, const TensorView& narrow, const MultiplySizes& sizes,
                const TensorView& to, bool add, ThreadPool& threads);
  // to = the sum of a * b over the pixels; both are wide.
  void (*sum)(const TensorView& a, const TensorView& b, const MultiplySizes& sizes,
              const TensorView& to, bool add, ThreadPool& threads);
};

ENGINE_ISA_TABLE(MultiplyTable, multiply_table)
ENGINE_STORED_TABLE(MultiplyTable, multiply_table)

}  // namespace engine::ops
