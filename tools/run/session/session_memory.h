// Derives the plan of a step, and its memory, from a training's options.
#pragma once

#include <functional>

#include "backends/group.h"
#include "engine/averaging/sums/ordered_tree.h"
#include "engine/graph/plan.h"
#include "tools/options/table/session_options.h"
#include "tools/report/observers/session_facts.h"
#include "tools/run/choices/compute_choice.h"
#include "tools/run/choices/memory_plan.h"
#include "tools/run/data/session_data.h"
#include "tools/run/session/session_parts.h"

namespace tools {

// Returns the plan for the maximum number of samples in one pass: a micro-batch, of a rank or of a
// shard. A rank may have none at all.
engine::PlanOptions plan_options(const SessionOptions& options, const Compute& compute,
                                 const SessionData& data, const engine::ThreadPool& pool);

// For canonical order.
engine::TreePartition shards_of(const SessionOptions& options, const backends::Group& group);

// Decides where the training samples are, and checks this rank's memory. Throws as check_memory()
// does, and io::ConfigError for samples that cannot be on a device as requested. `memory`: of the
// host. For steps on a device, that device's memory counts; nothing of it has been allocated yet.
OwnMemory check_own_memory(const SessionOptions& options, const Compute& compute,
                           const backends::Group& group, const SessionData& data,
                           const engine::Graph& graph, const engine::ThreadPool& pool,
                           const MemoryBudget& memory);

// Compiles the plan of a step that fits `memory`, which check_own_memory() has returned.
engine::Plan compile_plan(const SessionOptions& options, const Compute& compute,
                          const backends::Group& group, const SessionData& data,
                          const engine::Graph& graph, const engine::ThreadPool& pool,
                          const OwnMemory& memory);

// Returns what the plan keeps and what it recomputes. REQUIRES: the memory is limited.
MemoryFacts memory_facts(const SessionOptions& options, const Compute& compute,
                         const backends::Group& group, const SessionData& data,
                         const SessionModel& model);

// Returns this rank's need of memory on the device that it computes on.
MemoryNeed memory_need(const SessionOptions& options, const Compute& compute,
                       const backends::Group& group, const SessionData& data,
                       const SessionModel& model);

// Runs `make`, which may allocate on a CUDA device: a failed allocation becomes an
// engine::MemoryError, which also names the batch that would fit.
void allocate_on_device(const SessionOptions& options, const Compute& compute,
                        const backends::Group& group, const SessionData& data,
                        const SessionModel& model, const std::function<void()>& make);

}  // namespace tools
