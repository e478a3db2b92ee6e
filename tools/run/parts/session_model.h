// The model of a session with all that is made for its parameters: plan, state, optimizer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/averaging/sums/share_gather.h"
#include "engine/graph/plan.h"
#include "engine/train/step/device_samples.h"
#include "tools/run/parts/session_memory.h"
#include "tools/run/parts/session_setting.h"

namespace tools {

// Returns true if one of the patterns (* any run, ? any one character) matches the name.
bool matches_any(const std::vector<std::string>& patterns, const std::string& name);

// The parameters that each rank updates, and their exchange.
struct SharedUpdate {
  const engine::OptimizerShards shares;
  const bool of_buckets;  // each rank needs the sums of its slices only
  engine::ParameterGather gather;
};

// The model, whose weights are not initialized, and the plan of a step.
struct SessionModel {
  // Throws engine::MemoryError before allocating anything that does not fit `host`, or the device.
  SessionModel(const SessionSetting& setting, const MemoryBudget& host);
  // Adapts to another group and its shares of a batch; the state stays. REQUIRES: no work runs on
  // it. Throws as the constructor does.
  void refit(const SessionSetting& setting, const MemoryBudget& host);
  PlannedModel planned() const { return {graph, plan, memory}; }

  int pool_threads;
  engine::ThreadPool pool;
  engine::Graph graph;
  OwnMemory memory;
  // The training samples on the device; null: batches contain them. Made with the step's work.
  std::unique_ptr<engine::DeviceSamples> samples;
  engine::ModelState state;
  std::unique_ptr<SharedUpdate> shared_update;  // null: every rank updates all parameters
  std::unique_ptr<engine::Optimizer> optimizer;
  engine::StepControl control;  // for the loss scale
  engine::Plan plan;
  engine::KernelContext context;  // for the pool
};

// Returns the samples that batches name by their ids; null: batches contain them.
const engine::ResidentSamples* resident_samples(const SessionModel& model);

// Returns the optimizer for values that may be on a device. `shared`: null if every rank updates
// all.
std::unique_ptr<engine::Optimizer> make_optimizer(const UpdateOptions& update,
                                                  const engine::Graph& graph,
                                                  const engine::FlatBuffer& values,
                                                  SharedUpdate* shared);

}  // namespace tools
