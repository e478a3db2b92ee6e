// Layer normalisation in float32 on the CPU: what layer_norm.cc calls for the chosen instruction
// set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"

namespace engine::ops {

// Operands as in layer_norm.h; `mean` and `inverse_std` of forward may both be nullptr. Results do
// not depend on the number of threads.
struct LayerNormTable {
  void (*forward)(const float* x, std::int64_t rows, std::int64_t width, const float* gamma,
                  const float* beta, double eps, float* y, float* mean, float* inverse_std,
                  ThreadPool& threads);
  void (*backward_data)(const float* x, std::int64_t rows, std::int64_t width, const float* gamma,
                        const float* mean, const float* inverse_std, const float* dy, float* dx,
                        bool add, ThreadPool& threads);
  void (*backward_parameters)(const float* x, std::int64_t rows, std::int64_t width,
                              const float* mean, const float* inverse_std, const float* dy,
                              float* dgamma, float* dbeta, bool add, ThreadPool& threads);
};

ENGINE_ISA_TABLE(LayerNormTable, layer_norm_table)

}  // namespace engine::ops
