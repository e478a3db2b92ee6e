// Running statistics of weights that no training step has seen, such as averages.
#pragma once

#include <cstdint>

#include "backends/communicator.h"
#include "engine/core/replica_exchange.h"
#include "engine/core/thread_pool.h"
#include "engine/graph/model_state.h"
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
  std::uint64_t seed = 0;               // of dropout
  ReplicaExchange* replicas = nullptr;  // as AccumulatedWorkOptions have it
};

// The model's running statistics become the means of those of the batches of one epoch, forwarded
// in training mode with the parameters as they are, as torch.optim.swa_utils.update_bn has it. Each
// rank takes its share of the batches, and the means over the ranks count each by its batches: the
// same bits on all ranks. Counters grow, other state stays. The loader stands at another place
// afterwards. Collective. On the CPU.
void recompute_statistics(const StatisticsPass& pass, std::int64_t epoch);

}  // namespace engine
