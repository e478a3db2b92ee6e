// The kernel tables of optimizer steps in float32 on the CPU; optimizer_step.cc calls the one of
// the chosen instruction set.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"
#include "engine/ops/optim_step/update_list.h"

namespace engine::ops {

// `states` has kStates pointers. The bits are the same for every number of threads and every
// instruction set: replicas on different machines stay equal.
template <class Step>
struct UpdateKernel {
  void (*run)(const typename Step::template Numbers<float>& numbers, const float* gradient,
              float* const* states, std::int64_t count, float* value, ThreadPool& threads);
};

template <class List>
struct UpdateTable;
template <class... Steps>
struct UpdateTable<StepList<Steps...>> : UpdateKernel<Steps>... {};
using OptimizerStepTable = UpdateTable<UpdateSteps>;

ENGINE_ISA_TABLE(OptimizerStepTable, optimizer_step_table)

}  // namespace engine::ops
