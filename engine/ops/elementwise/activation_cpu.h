// The kernel tables of the activation functions on the CPU; activation.cc calls the one of the
// chosen instruction set.
#pragma once

#include <cstdint>

#include "engine/core/tensor_view.h"
#include "engine/core/thread_pool.h"
#include "engine/ops/common/bf16_dispatch.h"

namespace engine::ops {

struct ActivationSizes {
  std::int64_t count;
  int kind;             // the number of the function, in the order of ActivationKind
  float first, second;  // numbers of the function
};

// Operands are as in activation.h. Results do not depend on the number of threads.
struct ActivationTable {
  void (*forward)(const TensorView& x, const ActivationSizes& sizes, const TensorView& y,
                  ThreadPool& threads);
  void (*backward)(const TensorView& value, const TensorView& dy, const ActivationSizes& sizes,
                   const TensorView& dx, bool add, ThreadPool& threads);
};

ENGINE_ISA_TABLE(ActivationTable, activation_table)
ENGINE_STORED_TABLE(ActivationTable, activation_table)

}  // namespace engine::ops
