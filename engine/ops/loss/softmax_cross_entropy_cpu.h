// The kernel tables of softmax with cross entropy in float32 on the CPU; softmax_cross_entropy.cc
// calls the one of the chosen instruction set.
#pragma once

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"
#include "engine/ops/common/rows.h"
#include "engine/ops/loss/softmax_cross_entropy.h"

namespace engine::ops {

// `sizes` are those of the logits. Results do not depend on the number of threads.
struct SoftmaxCrossEntropyTable {
  void (*forward)(const SoftmaxCrossEntropyForward& o, const RowSizes& sizes, ThreadPool& threads);
};

ENGINE_ISA_TABLE(SoftmaxCrossEntropyTable, softmax_cross_entropy_table)

}  // namespace engine::ops
