// Softmax with cross entropy in float32 on the CPU: what softmax_cross_entropy.cc calls for rows of
// many classes.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"

namespace engine::ops {

// Operands as in softmax_cross_entropy.h; `gradient` may be nullptr. Results do not depend on the
// number of threads.
struct SoftmaxCrossEntropyTable {
  void (*forward)(const float* logits, const std::int32_t* labels, std::int64_t rows,
                  std::int64_t classes, float* loss, float* gradient, float smoothing,
                  ThreadPool& threads);
};

ENGINE_ISA_TABLE(SoftmaxCrossEntropyTable, softmax_cross_entropy_table)

}  // namespace engine::ops
