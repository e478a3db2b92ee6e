// Recomputes the running statistics of weights that no training step has used, e.g. averages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "engine/core/replica_exchange.h"
#include "engine/core/thread_pool.h"
#include "engine/graph/model_state.h"
#include "engine/graph/plan.h"
#include "engine/graph/resident_samples.h"
#include "engine/ops/common/kernel_context.h"
#include "io/data/loader/batch_loader.h"

namespace engine {

struct StatisticsPass {
  const Graph& graph;
  ModelState& model;  // in host memory
  ThreadPool& threads;
  const io::Sampler& sampler;
  io::BatchLoader& loader;
  backends::Communicator& communicator;
  std::int64_t micro_batches = 1;
  Products products = Products::kF32;
  std::uint64_t seed = 0;               // seed of dropout
  ReplicaExchange* replicas = nullptr;  // as in AccumulatedWorkOptions
  // A CUDA device computes on a copy of the state, with activations of `storage`.
  Device device = {};
  DType storage = DType::kF32;
  std::vector<float> image_table = {};        // on a device: batches contain bytes
                                              // (DeviceExecutorOptions)
  const ResidentSamples* resident = nullptr;  // the same
  // Leaves out steps after which a statistic is not finite on any rank.
  bool skips_nonfinite = false;
};

// The plan of the pass with that of a step: keeps the fewest activations, as backward does not
// follow.
PlanOptions statistics_plan(PlanOptions plan);

struct StatisticsReport {
  std::int64_t steps = 0, skipped = 0;  // of the epoch
  // The first parameter or running statistic that is not finite after the pass; "": none.
  std::string not_finite = {};
};

// Replaces the model's running statistics by the means of those of the batches of one epoch, which
// are forwarded in training mode with the current parameters, as in
// torch.optim.swa_utils.update_bn. Each rank processes its part of the batches, and the means over
// the ranks are weighted by their numbers of batches: all ranks get the same bits. Counters grow,
// other state is unchanged. The position of the loader changes. All ranks return the same report.
// If all steps are skipped, the model keeps its statistics. Collective.
StatisticsReport recompute_statistics(const StatisticsPass& pass, std::int64_t epoch);

}  // namespace engine
