// Optimizer steps in float32 on the CPU: what optimizer_step.cc calls for the chosen instruction
// set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"

namespace engine::ops {

// SgdStep and AdamwStep (optimizer_step.h) with every number that is the same for all elements
// worked out.
struct SgdNumbers {
  float lr, momentum, weight_decay, gradient_scale;
  bool nesterov, first;
};
struct AdamwNumbers {
  float keep, rest1, beta2, rest2, step_size, root_bias2, eps, gradient_scale;
};

// `velocity` may be nullptr: no momentum. The same bits for every number of threads and every
// instruction set: replicas on unlike machines stay equal.
struct OptimizerStepTable {
  void (*sgd)(const SgdNumbers& step, const float* gradient, float* velocity, std::int64_t count,
              float* value, ThreadPool& threads);
  void (*adamw)(const AdamwNumbers& step, const float* gradient, float* first_moment,
                float* second_moment, std::int64_t count, float* value, ThreadPool& threads);
};

ENGINE_ISA_TABLE(OptimizerStepTable, optimizer_step_table)

}  // namespace engine::ops
