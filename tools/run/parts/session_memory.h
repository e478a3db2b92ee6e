// Derives the plan of a step, and its memory, from a training's options.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/averaging/sums/ordered_tree.h"
#include "engine/graph/plan.h"
#include "tools/report/text/session_facts.h"
#include "tools/run/choices/memory_plan.h"
#include "tools/run/parts/session_setting.h"

namespace tools {

// The memory that a rank may use, and the part of it that training samples take.
struct OwnMemory {
  RankLimit limit = {};             // by --memory
  std::uint64_t resident = 0;       // bytes of the samples on the device; 0: they are not there
  std::string in_host_memory = {};  // why --data-on-device auto leaves them there; else ""
  std::uint64_t in_use = 0;         // MemoryBudget::in_use() of the device when it was planned
};

// The plan of a step in that memory.
struct PlannedModel {
  const engine::Graph& graph;
  const engine::Plan& plan;
  const OwnMemory& memory;
};

// Returns the plan for the maximum number of samples in one pass: a micro-batch, of a rank or of a
// shard. A rank may have none at all.
engine::PlanOptions plan_options(const SessionSetting& setting, const engine::ThreadPool& pool);

// For canonical order.
engine::TreePartition shards_of(const SessionOptions& options, const backends::Group& group);

// Decides where the training samples are, and checks this rank's memory. Throws as check_memory()
// does, and io::ConfigError for samples that cannot be on a device as requested. `memory`: of the
// host. For steps on a device, that device's memory counts; nothing of it has been allocated yet.
OwnMemory check_own_memory(const SessionSetting& setting, const engine::Graph& graph,
                           const engine::ThreadPool& pool, const MemoryBudget& memory);

// Compiles the plan of a step that fits `memory`, which check_own_memory() has returned.
engine::Plan compile_plan(const SessionSetting& setting, const engine::Graph& graph,
                          const engine::ThreadPool& pool, const OwnMemory& memory);

// Returns what the plan keeps and what it recomputes. REQUIRES: the memory is limited.
MemoryFacts memory_facts(const SessionSetting& setting, const PlannedModel& model);

// Returns this rank's need of memory on the device that it computes on.
MemoryNeed memory_need(const SessionSetting& setting, const PlannedModel& model);

// Runs `make`, which may allocate on a CUDA device: a failed allocation becomes an
// engine::MemoryError, which also names the batch that would fit.
void allocate_on_device(const SessionSetting& setting, const PlannedModel& model,
                        const std::function<void()>& make);

}  // namespace tools
