// The kernel tables of the softmax in float32 on the CPU; softmax.cc calls the one of the chosen
// instruction set.
#pragma once

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"
#include "engine/ops/common/rows.h"

namespace engine::ops {

// Results do not depend on the number of threads.
struct SoftmaxTable {
  void (*forward)(const float* x, const RowSizes& sizes, float* y, ThreadPool& threads);
  void (*backward)(const float* y, const float* dy, const RowSizes& sizes, float* dx, bool add,
                   ThreadPool& threads);
};

ENGINE_ISA_TABLE(SoftmaxTable, softmax_table)

}  // namespace engine::ops
