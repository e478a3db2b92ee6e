// Batch normalisation in float32 on the CPU: what batch_norm.cc calls for the chosen instruction
// set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"

namespace engine::ops {

// Operands as in batch_norm.h; `residual` and `dresidual` may be nullptr, and so may `y` of the
// backward passes: no ReLU. `scratch`: 64-byte aligned, scratch_floats() floats.
struct BatchNormTable {
  std::int64_t (*scratch_floats)(std::int64_t channels, int threads);
  void (*statistics)(const float* x, std::int64_t rows, std::int64_t channels, double* sums,
                     ThreadPool& threads, float* scratch);
  void (*normalize)(const float* x, const float* mean, const float* inverse_std, const float* gamma,
                    const float* beta, const float* residual, bool relu, std::int64_t rows,
                    std::int64_t channels, float* y, ThreadPool& threads, float* scratch);
  void (*backward_sums)(const float* x, const float* y, const float* dy, const float* mean,
                        const float* inverse_std, std::int64_t rows, std::int64_t channels,
                        double* sums, float* dresidual, bool add_residual, ThreadPool& threads,
                        float* scratch);
  void (*backward_data)(const float* x, const float* y, const float* dy, const float* mean,
                        const float* inverse_std, const float* gamma, const double* sums,
                        std::int64_t group_rows, std::int64_t rows, std::int64_t channels,
                        float* dx, bool add, ThreadPool& threads, float* scratch);
};

ENGINE_ISA_TABLE(BatchNormTable, batch_norm_table)

}  // namespace engine::ops
