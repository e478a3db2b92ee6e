// Runs forward passes whose batches have equal weight.
#include "engine/train/statistics_pass.h"

#include <algorithm>
#include <vector>

#include "engine/averaging/sums/flat_math.h"
#include "engine/graph/executor.h"
#include "engine/train/step/loaded_batch.h"

namespace engine {
namespace {

Plan make_plan(const StatisticsPass& pass) {
  const std::int64_t most = std::max<std::int64_t>(1, pass.sampler.max_local_count());
  return Plan::compile(pass.graph, {.max_batch = (most - 1) / pass.micro_batches + 1,
                                    .dtype = pass.model.parameters.values.dtype(),
                                    .threads = pass.threads.threads(),
                                    .products = pass.products});
}

// Returns the number of forward passes. With statistics over all ranks, every rank runs a forward
// pass for each batch, even if its part is empty.
std::int64_t forward_epoch(const StatisticsPass& pass, std::int64_t epoch) {
  const Plan plan = make_plan(pass);
  Executor executor(plan, pass.model, pass.threads, pass.seed);
  executor.set_replicas(pass.replicas);
  std::vector<ops::ImageDraw> draws;
  std::int64_t batches = 0;
  pass.loader.seek(epoch, 0);
  for (std::int64_t step = 0; step < pass.sampler.steps_per_epoch(); ++step) {
    const BatchView batch = view_of(pass.loader.next(), draws);
    for (std::int64_t m = 0; m < pass.micro_batches; ++m) {
      const std::int64_t first = batch.count * m / pass.micro_batches,
                         last = batch.count * (m + 1) / pass.micro_batches;
      if (first == last && pass.replicas == nullptr) continue;
      executor.set_statistics_weight(1.0 / static_cast<double>(++batches));
      static_cast<void>(executor.forward(batch.slice(first, last - first), /*training=*/true));
    }
  }
  return batches;
}

void merge_over_ranks(const StatisticsPass& pass, std::int64_t batches) {
  with_element_type(pass.model.running.dtype(), [&]<class T>(T) {
    const std::span<T> running = pass.model.running.span<T>();
    std::vector<double> sums(running.begin(), running.end());
    for (double& sum : sums) sum *= static_cast<double>(batches);
    sums.push_back(static_cast<double>(batches));
    pass.communicator.all_reduce(sums.data(), sums.size(), DType::kF64, backends::ReduceOp::kSum);
    if (sums.back() == 0) return;
    for (std::size_t i = 0; i < running.size(); ++i)
      running[i] = static_cast<T>(sums[i] / sums.back());
  });
}

}  // namespace

void recompute_statistics(const StatisticsPass& pass, std::int64_t epoch) {
  const std::int64_t batches = forward_epoch(pass, epoch);
  if (pass.communicator.world_size() > 1) merge_over_ranks(pass, batches);
}

}  // namespace engine
