// The kernel tables of GELU in float32 on the CPU; gelu.cc calls the one of the chosen instruction
// set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"

namespace engine::ops {

// Operands are as in gelu.h. Results do not depend on the number of threads.
struct GeluTable {
  void (*forward)(const float* x, std::int64_t count, bool tanh, float* y, ThreadPool& threads);
  void (*backward)(const float* x, const float* dy, std::int64_t count, bool tanh, float* dx,
                   bool add, ThreadPool& threads);
};

ENGINE_ISA_TABLE(GeluTable, gelu_table)

}  // namespace engine::ops
