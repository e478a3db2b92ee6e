// Runs forward passes whose batches have equal weight.
#include "engine/train/statistics_pass.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "engine/averaging/math/flat_math.h"
#include "engine/graph/device_inference.h"
#include "engine/graph/executor.h"
#include "engine/train/step/batch_views.h"

namespace engine {
namespace {

Plan make_plan(const StatisticsPass& pass) {
  const std::int64_t most = std::max<std::int64_t>(1, pass.sampler.max_local_count());
  const bool on_device = pass.device.kind == Device::Kind::kCuda;
  return Plan::compile(pass.graph,
                       {.max_batch = (most - 1) / pass.micro_batches + 1,
                        .dtype = on_device ? pass.storage : pass.model.parameters.values.dtype(),
                        .threads = pass.threads.threads(),
                        .device = pass.device.kind,
                        .products = pass.products});
}

// Runs a forward pass whose statistics have this weight.
using Forward = std::function<void(const BatchView& batch, double weight)>;

// Returns the number of forward passes. With statistics over all ranks, every rank runs a forward
// pass for each batch, even if its part is empty.
std::int64_t forward_epoch(const StatisticsPass& pass, std::int64_t epoch, const Forward& forward) {
  std::vector<ops::ImageDraw> draws;
  std::int64_t batches = 0;
  pass.loader.seek(epoch, 0);
  for (std::int64_t step = 0; step < pass.sampler.steps_per_epoch(); ++step) {
    const BatchView batch = view_of(pass.loader.next(), draws);
    for (std::int64_t m = 0; m < pass.micro_batches; ++m) {
      const BatchView part = micro_batch_of(batch, m, pass.micro_batches);
      if (part.count == 0 && pass.replicas == nullptr) continue;
      forward(part, 1.0 / static_cast<double>(++batches));
    }
  }
  return batches;
}

std::int64_t forward_on_host(const StatisticsPass& pass, std::int64_t epoch) {
  const Plan plan = make_plan(pass);
  Executor executor(plan, pass.model, pass.threads, pass.seed);
  executor.set_replicas(pass.replicas);
  return forward_epoch(pass, epoch, [&](const BatchView& batch, double weight) {
    executor.set_statistics_weight(weight);
    static_cast<void>(executor.forward(batch, /*training=*/true));
  });
}

std::int64_t forward_on_device(const StatisticsPass& pass, std::int64_t epoch) {
  const Plan plan = make_plan(pass);
  DeviceInference device(
      plan, pass.device, pass.products,
      {.seed = pass.seed, .image_table = pass.image_table, .resident = pass.resident});
  device.set_replicas(pass.replicas);
  device.load(pass.model);
  const std::int64_t batches = forward_epoch(
      pass, epoch,
      [&](const BatchView& batch, double weight) { device.add_statistics(batch, weight); });
  device.store_statistics(pass.model);
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
  const bool on_device = pass.device.kind == Device::Kind::kCuda;
  const std::int64_t batches =
      on_device ? forward_on_device(pass, epoch) : forward_on_host(pass, epoch);
  if (pass.communicator.world_size() > 1) merge_over_ranks(pass, batches);
}

}  // namespace engine
