// The parts of a training, in the order of their dependencies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/group.h"
#include "engine/averaging/policies/averaging_policy.h"
#include "engine/averaging/sums/share_gather.h"
#include "engine/graph/plan.h"
#include "engine/train/epoch_steps.h"
#include "engine/train/step/device_samples.h"
#include "engine/train/step/step_work.h"
#include "tools/options/table/session_options.h"
#include "tools/run/choices/compute_choice.h"
#include "tools/run/choices/memory_plan.h"
#include "tools/run/data/session_data.h"

namespace tools {

// Returns true if one of the patterns (* any run, ? any one character) matches the name.
bool matches_any(const std::vector<std::string>& patterns, const std::string& name);

// The parameters that each rank updates, and their exchange.
struct SharedUpdate {
  const engine::OptimizerShards shares;
  const bool of_buckets;  // each rank needs the sums of its slices only
  engine::ParameterGather gather;
};

// The memory that a rank may use, and the part of it that training samples take.
struct OwnMemory {
  std::uint64_t limit = 0;          // by --memory; 0: none
  std::uint64_t resident = 0;       // bytes of the samples on the device; 0: they are not there
  std::string in_host_memory = {};  // why --data-on-device auto leaves them there; else ""
  std::uint64_t in_use = 0;         // MemoryBudget::in_use() of the device when it was planned
};

// The model, whose weights are not initialized, and the plan of a step.
struct SessionModel {
  // Throws engine::MemoryError before allocating anything that does not fit `host`, or the device.
  SessionModel(const SessionOptions& options, const Compute& compute, const backends::Group& group,
               const SessionData& data, const MemoryBudget& host);
  // Adapts to another group and its shares of a batch; the state stays. REQUIRES: no work runs on
  // it. Throws as the constructor does.
  void refit(const SessionOptions& options, const Compute& compute, const backends::Group& group,
             const SessionData& data, const MemoryBudget& host);

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

// NCCL's communicators. They are made before memory is planned, since they take device memory that
// is then no longer free.
struct DeviceCommunicators {
  DeviceCommunicators(const SessionOptions& options, const Compute& compute,
                      backends::Group& group);

  // If null, gradients or their codes pass through host memory, bucket by bucket.
  std::unique_ptr<backends::DeviceCommunicator> gradients;
  // If null, averagings of parameters exchange them in host memory.
  std::unique_ptr<backends::DeviceCommunicator> parameters;
  // If null, layers exchange batch statistics in host memory.
  std::unique_ptr<backends::DeviceCommunicator> statistics;
  // By rank: with each other rank, for --sync gossip. If empty, pairs exchange parameters in host
  // memory.
  std::vector<std::unique_ptr<backends::DeviceCommunicator>> pairs;
};

// Has one communicator for each thread or stream whose calls may run concurrently with others.
struct SessionCommunicators {
  // Collective. `graph` determines if layers exchange statistics. `on_devices` must outlive this.
  SessionCommunicators(const SessionOptions& options, backends::Group& group,
                       const engine::Graph& graph, const DeviceCommunicators& on_devices);

  std::vector<int> island;  // ranks that form one replica
  // For all ranks: used by the policy or, in canonical order, the work.
  std::unique_ptr<backends::Communicator> averaging;
  std::unique_ptr<backends::Communicator> within_island;  // null: every rank is its own island
  // By rank: with each other rank, for --sync gossip; otherwise empty.
  std::vector<std::unique_ptr<backends::Communicator>> pairs;
  std::span<const std::unique_ptr<backends::DeviceCommunicator>>
      device_pairs;                                    // DeviceCommunicators::pairs
  backends::DeviceCommunicator* device;                // DeviceCommunicators::gradients
  backends::DeviceCommunicator* device_averaging;      // DeviceCommunicators::parameters
  backends::DeviceCommunicator* device_statistics;     // DeviceCommunicators::statistics
  std::unique_ptr<backends::Communicator> statistics;  // null: no layer exchanges statistics
  std::unique_ptr<engine::ReplicaExchange> replicas;   // uses `statistics`
};

// Returns the samples that batches name by their ids; null: batches contain them.
const engine::ResidentSamples* resident_samples(const SessionModel& model);

// Returns how this rank computes a step, with the model's samples on its device. `control`:
// communicator for agreement on skipped steps.
std::unique_ptr<engine::StepWork> make_work(const SessionOptions& options, const Compute& compute,
                                            const backends::Group& group, const SessionData& data,
                                            SessionModel& model,
                                            const SessionCommunicators& communicators,
                                            backends::Communicator& control);

std::unique_ptr<engine::AveragingPolicy> make_policy(const SessionOptions& options,
                                                     const Compute& compute,
                                                     const backends::Group& group,
                                                     SessionModel& model,
                                                     const SessionCommunicators& communicators);

engine::RunLength run_length(const SessionOptions& options, const SessionData& data);

}  // namespace tools
