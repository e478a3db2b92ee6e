// What a training is put together from, in the order in which one part needs the others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/group.h"
#include "engine/averaging/policies/averaging_policy.h"
#include "engine/averaging/sums/share_gather.h"
#include "engine/graph/plan.h"
#include "engine/train/epoch_steps.h"
#include "engine/train/step/step_work.h"
#include "tools/options/table/session_options.h"
#include "tools/run/choices/compute_choice.h"
#include "tools/run/choices/memory_plan.h"
#include "tools/run/data/session_data.h"

namespace tools {

// Whether one of the patterns (* any run, ? any one character) is the name's.
bool matches_any(const std::vector<std::string>& patterns, const std::string& name);

// What each rank updates, and how all get it.
struct SharedUpdate {
  const engine::OptimizerShards shares;
  engine::ParameterGather gather;
};

// The model, without weights yet, and the plan of a step.
struct SessionModel {
  // Throws engine::MemoryError before anything is allocated that `memory` has no room for.
  SessionModel(const SessionOptions& options, const Compute& compute, const backends::Group& group,
               const SessionData& data, const MemoryBudget& memory);
  // For another group and its shares of a batch; the state stays. Nothing may run on it. Throws as
  // the constructor does.
  void refit(const SessionOptions& options, const Compute& compute, const backends::Group& group,
             const SessionData& data, const MemoryBudget& memory);

  int pool_threads;
  engine::ThreadPool pool;
  engine::Graph graph;
  engine::ModelState state;
  std::unique_ptr<SharedUpdate> shared_update;  // null: every rank updates all parameters
  std::unique_ptr<engine::Optimizer> optimizer;
  engine::StepControl control;  // of the loss scale
  engine::Plan plan;
  engine::KernelContext context;  // of the pool
};

// One communicator for each thread or stream of calls that may be under way with others.
struct SessionCommunicators {
  // Collective. `graph` tells whether layers exchange statistics.
  SessionCommunicators(const SessionOptions& options, const Compute& compute,
                       backends::Group& group, const engine::Graph& graph);

  std::vector<int> island;                                // ranks that count as one replica
  std::unique_ptr<backends::Communicator> averaging;      // of all ranks, for the policy or, in
                                                          // canonical order, the work
  std::unique_ptr<backends::Communicator> within_island;  // null: every rank is its own island
  // NCCL's, where gradients can be averaged on the devices. Null: they pass through host memory,
  // bucket by bucket.
  std::unique_ptr<backends::DeviceCommunicator> device;
  std::unique_ptr<backends::Communicator> statistics;  // null: no layer exchanges any
  std::unique_ptr<engine::ReplicaExchange> replicas;   // over it
};

// How this rank computes a step. `control`: where ranks agree on skipped steps.
std::unique_ptr<engine::StepWork> make_work(const SessionOptions& options, const Compute& compute,
                                            const backends::Group& group, const SessionData& data,
                                            SessionModel& model, const SessionCommunicators& wires,
                                            backends::Communicator& control);

std::unique_ptr<engine::AveragingPolicy> make_policy(const SessionOptions& options,
                                                     const backends::Group& group,
                                                     SessionModel& model,
                                                     const SessionCommunicators& wires);

engine::RunLength run_length(const SessionOptions& options, const SessionData& data);

// Of a run that begins or goes on at `at`. `max_ranks` as in DataOptions.
engine::LearningRate learning_rate(const UpdateOptions& options, int world_size, int max_ranks,
                                   const engine::RunLength& run, const engine::TrainProgress& at);
// How its base came from --lr: " (0.1 x 2 ranks)"; "" where it is --lr.
std::string rate_arithmetic(const UpdateOptions& options, int world_size, int max_ranks);

}  // namespace tools
