// The kernel tables of layer normalization in float32 on the CPU; layer_norm.cc calls the one of
// the chosen instruction set.
#pragma once

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"
#include "engine/ops/norm/layer_norm.h"

namespace engine::ops {

// Results do not depend on the number of threads.
struct LayerNormTable {
  void (*forward)(const LayerNormForward& o, ThreadPool& threads);
  void (*backward_data)(const LayerNormBackwardData& o, ThreadPool& threads);
  void (*backward_parameters)(const LayerNormBackwardParameters& o, ThreadPool& threads);
};

ENGINE_ISA_TABLE(LayerNormTable, layer_norm_table)

}  // namespace engine::ops
