// The kernel tables of RMS normalization in float32 on the CPU; rms_norm.cc calls the one of the
// chosen instruction set.
#pragma once

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"
#include "engine/ops/rms_norm/rms_norm_operands.h"

namespace engine::ops {

// Results do not depend on the number of threads.
struct RmsNormTable {
  void (*forward)(const RmsNormForward& o, const RmsNormSizes& sizes, ThreadPool& threads);
  void (*backward)(const RmsNormBackward& o, const RmsNormSizes& sizes, ThreadPool& threads);
};

ENGINE_ISA_TABLE(RmsNormTable, rms_norm_table)

}  // namespace engine::ops
