// What a training's options mean for the plan of a step, and for memory.
#pragma once

#include <functional>

#include "backends/group.h"
#include "engine/averaging/sums/ordered_tree.h"
#include "engine/graph/plan.h"
#include "tools/options/table/session_options.h"
#include "tools/run/choices/compute_choice.h"
#include "tools/run/choices/memory_plan.h"
#include "tools/run/data/session_data.h"
#include "tools/run/session/session_parts.h"

namespace tools {

// For the most samples that one pass computes: a micro-batch, of a rank or of a shard. A rank may
// have none at all.
engine::PlanOptions plan_options(const SessionOptions& options, const Compute& compute,
                                 const SessionData& data, const engine::ThreadPool& pool);

// In canonical order.
engine::TreePartition shards_of(const SessionOptions& options, const backends::Group& group);

// Throws engine::MemoryError, as check_memory(). `memory`: of the host. For steps on a device its
// memory counts, of which nothing has been taken.
void check_own_memory(const SessionOptions& options, const Compute& compute,
                      const backends::Group& group, const SessionData& data,
                      const engine::Graph& graph, const engine::ThreadPool& pool,
                      const MemoryBudget& memory);

// What this rank needs, of the memory of the device that it computes on.
MemoryNeed memory_need(const SessionOptions& options, const Compute& compute,
                       const backends::Group& group, const SessionData& data,
                       const SessionModel& model);

// Runs `make`, which may allocate on a CUDA device: memory that is refused is an
// engine::MemoryError then, which also says which batch would fit.
void allocate_on_device(const SessionOptions& options, const Compute& compute,
                        const backends::Group& group, const SessionData& data,
                        const SessionModel& model, const std::function<void()>& make);

}  // namespace tools
