// Runs forward passes whose batches have equal weight.
#include "engine/train/statistics_pass.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "engine/averaging/math/flat_math.h"
#include "engine/core/cuda_host.h"
#include "engine/graph/device_inference.h"
#include "engine/graph/executor.h"
#include "engine/train/checks/buffer_backup.h"
#include "engine/train/checks/finite_guard.h"
#include "engine/train/step/batch_views.h"
#include "io/base/numbers/finite.h"

namespace engine {
namespace {

Plan make_plan(const StatisticsPass& pass) {
  const std::int64_t most = std::max<std::int64_t>(1, pass.sampler.max_local_count());
  const bool on_device = pass.device.kind == Device::Kind::kCuda;
  return Plan::compile(
      pass.graph,
      statistics_plan({.max_batch = (most - 1) / pass.micro_batches + 1,
                       .dtype = on_device ? pass.storage : pass.model.parameters.values.dtype(),
                       .threads = pass.threads.threads(),
                       .device = pass.device.kind,
                       .products = pass.products}));
}

// Runs forward passes in training mode.
class StatisticsForward {
 public:
  virtual ~StatisticsForward() = default;
  // `weight` is that of the batch's statistics in the running ones.
  virtual void run(const BatchView& batch, double weight) = 0;
  // Copies statistics and counters to and from the model in host memory.
  virtual void store() = 0;
  virtual void load() = 0;
};

class HostStatistics final : public StatisticsForward {
 public:
  explicit HostStatistics(const StatisticsPass& pass)
      : plan_(make_plan(pass)), executor_(plan_, pass.model, pass.threads, pass.seed) {
    executor_.set_replicas(pass.replicas);
  }
  void run(const BatchView& batch, double weight) override {
    executor_.set_statistics_weight(weight);
    static_cast<void>(executor_.forward(batch, /*training=*/true));
  }
  void store() override {}
  void load() override {}

 private:
  const Plan plan_;
  Executor executor_;
};

class DeviceStatistics final : public StatisticsForward {
 public:
  explicit DeviceStatistics(const StatisticsPass& pass)
      : model_(pass.model),
        plan_(make_plan(pass)),
        device_(plan_, pass.device, pass.products,
                {.seed = pass.seed, .image_table = pass.image_table, .resident = pass.resident}) {
    device_.set_replicas(pass.replicas);
    load();
  }
  void run(const BatchView& batch, double weight) override {
    device_.add_statistics(batch, weight);
  }
  void store() override { device_.store_statistics(model_); }
  void load() override { device_.load(model_); }

 private:
  ModelState& model_;
  const Plan plan_;
  DeviceInference device_;
};

std::unique_ptr<StatisticsForward> make_forward(const StatisticsPass& pass) {
  if (pass.device.kind == Device::Kind::kCuda) return std::make_unique<DeviceStatistics>(pass);
  return std::make_unique<HostStatistics>(pass);
}

// Calls function(view) for each running statistic. The constants of the model, e.g. the -inf of a
// mask, lie among them and stay as they are.
template <class Function>
void for_each_statistic(const ModelState& model, const Function& function) {
  for (const ModelState::Entry& entry : model.entries)
    if (entry.is_statistic()) function(model.view(entry));
}

bool has_finite_statistics(const StatisticsPass& pass) {
  std::int64_t bad = 0;
  for_each_statistic(pass.model, [&](const TensorView& view) {
    if (base::first_not_finite(view.dtype, view.data, static_cast<std::size_t>(view.count())) >= 0)
      bad = 1;
  });
  if (pass.communicator.world_size() > 1)
    pass.communicator.all_reduce(&bad, 1, DType::kI64, backends::ReduceOp::kMax);
  return bad == 0;
}

// Counts this rank's forward passes. With statistics over all ranks, every rank runs a forward pass
// for each batch, even if its part is empty.
void forward_step(const StatisticsPass& pass, const BatchView& batch, StatisticsForward& forward,
                  std::int64_t& batches) {
  for (std::int64_t m = 0; m < pass.micro_batches; ++m) {
    const BatchView part = micro_batch_of(batch, m, pass.micro_batches);
    if (part.count == 0 && pass.replicas == nullptr) continue;
    forward.run(part, 1.0 / static_cast<double>(++batches));
  }
}

// Calls step(batch) for each step of the epoch.
template <class Step>
void for_each_step(const StatisticsPass& pass, std::int64_t epoch, const Step& step) {
  std::vector<ops::ImageDraw> draws;
  pass.loader.seek(epoch, 0);
  for (std::int64_t i = 0; i < pass.sampler.steps_per_epoch(); ++i)
    step(view_of(pass.loader.next(), draws));
}

// Returns the number of forward passes, like the others.
std::int64_t forward_epoch(const StatisticsPass& pass, std::int64_t epoch,
                           StatisticsForward& forward) {
  std::int64_t batches = 0;
  for_each_step(pass, epoch,
                [&](const BatchView& batch) { forward_step(pass, batch, forward, batches); });
  forward.store();
  return batches;
}

// Undoes each step after which a statistic is not finite on any rank.
std::int64_t forward_finite_steps(const StatisticsPass& pass, std::int64_t epoch,
                                  StatisticsForward& forward, StatisticsReport& report) {
  std::int64_t batches = 0;
  BufferBackup before;
  for_each_step(pass, epoch, [&](const BatchView& batch) {
    before.clear();
    before.keep(pass.model.running);
    before.keep(pass.model.counters);
    const std::int64_t batches_before = batches;
    forward_step(pass, batch, forward, batches);
    forward.store();
    if (has_finite_statistics(pass)) return;
    before.put_back();
    forward.load();
    batches = batches_before;
    ++report.skipped;
  });
  return batches;
}

// Only an epoch with a step to skip is forwarded again with a check after each step, for which the
// host waits for the device.
std::int64_t forward_with_skips(const StatisticsPass& pass, std::int64_t epoch,
                                StatisticsForward& forward, StatisticsReport& report) {
  BufferBackup before;
  before.keep(pass.model.running);
  before.keep(pass.model.counters);
  const std::int64_t batches = forward_epoch(pass, epoch, forward);
  if (has_finite_statistics(pass)) return batches;
  before.put_back();
  forward.load();
  return forward_finite_steps(pass, epoch, forward, report);
}

// The first batch has the weight 1, which a number that is not finite would outlive.
void clear_nonfinite(const ModelState& model) {
  for_each_statistic(model, [](const TensorView& view) {
    with_element_type(view.dtype, [&]<class T>(T) {
      T* values = view.as<T>();
      for (std::int64_t i = 0; i < view.count(); ++i)
        if (!std::isfinite(values[i])) values[i] = 0;
    });
  });
}

void merge_over_ranks(const StatisticsPass& pass, std::int64_t batches) {
  with_element_type(pass.model.running.dtype(), [&]<class T>(T) {
    const std::span<T> running = pass.model.running.span<T>();
    std::vector<double> sums(running.begin(), running.end());
    for (double& sum : sums) sum *= static_cast<double>(batches);
    sums.push_back(static_cast<double>(batches));
    pass.communicator.all_reduce(sums.data(), sums.size(), DType::kF64, backends::ReduceOp::kSum);
    if (sums.back() == 0)
      return pass.communicator.broadcast(running.data(), running.size_bytes(), 0);
    for_each_statistic(pass.model, [&](const TensorView& view) {
      T* values = view.as<T>();
      const double* sum = sums.data() + (values - running.data());
      for (std::int64_t i = 0; i < view.count(); ++i)
        values[i] = static_cast<T>(sum[i] / sums.back());
    });
  });
}

}  // namespace

PlanOptions statistics_plan(PlanOptions plan) {
  plan.memory_limit = 1;
  return plan;
}

StatisticsReport recompute_statistics(const StatisticsPass& pass, std::int64_t epoch) {
  StatisticsReport report{.steps = pass.sampler.steps_per_epoch()};
  const cuda::MemoryPurpose purpose("the average");
  BufferBackup before;
  before.keep(pass.model.running);
  clear_nonfinite(pass.model);
  const std::unique_ptr<StatisticsForward> forward = make_forward(pass);
  const std::int64_t batches = pass.skips_nonfinite
                                   ? forward_with_skips(pass, epoch, *forward, report)
                                   : forward_epoch(pass, epoch, *forward);
  if (report.skipped == report.steps) before.put_back();
  if (pass.communicator.world_size() > 1) merge_over_ranks(pass, batches);
  if (const auto bad = first_not_finite(pass.model, /*statistics=*/true))
    report.not_finite = pass.model.entries[*bad].name;
  return report;
}

}  // namespace engine
