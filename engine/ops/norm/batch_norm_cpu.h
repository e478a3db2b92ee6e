// The kernel tables of batch normalization in float32 on the CPU; batch_norm.cc calls the one of
// the chosen instruction set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/bf16_dispatch.h"
#include "engine/ops/norm/batch_norm.h"

namespace engine::ops {

// `scratch` is 64-byte aligned and has scratch_floats() floats.
struct BatchNormTable {
  std::int64_t (*scratch_floats)(std::int64_t channels, int threads);
  void (*statistics)(const TensorView& x, const TensorView& sums, ThreadPool& threads,
                     float* scratch);
  void (*normalize)(const BatchNormNormalize& o, ThreadPool& threads, float* scratch);
  void (*backward_sums)(const BatchNormBackwardSums& o, ThreadPool& threads, float* scratch);
  void (*backward_data)(const BatchNormBackwardData& o, ThreadPool& threads, float* scratch);
};

ENGINE_ISA_TABLE(BatchNormTable, batch_norm_table)
ENGINE_STORED_TABLE(BatchNormTable, batch_norm_table)

}  // namespace engine::ops
