// Enqueues the shards' work. Where one follows another, its gradients go into the tree before the
// next one overwrites them.
#include "engine/train/step/device_shards.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/core/cuda_host.h"
#include "engine/train/step/batch_views.h"
#include "io/base/numbers/part_bounds.h"
#include "io/base/time/trace.h"

namespace engine {
namespace {

// A graph contains the kernels of all micro-batches of all shards.
constexpr std::int64_t kMaxCapturedBatches = 64;

std::size_t max_count(const TreePartition& cut) {
  int most = 0;
  for (int rank = 0; rank < cut.world(); ++rank) most = std::max(most, cut.count(rank));
  return static_cast<std::size_t>(most);
}

std::int64_t max_batches(const TreePartition& cut, std::int64_t micro_batches) {
  return static_cast<std::int64_t>(max_count(cut)) * micro_batches;
}

}  // namespace

int graph_slots(const TreePartition& cut, int rank, std::int64_t micro_batches, bool in_turn) {
  const int usual = DeviceExecutorOptions{}.slots;
  if (max_batches(cut, micro_batches) > kMaxCapturedBatches) return usual;
  return usual * (in_turn ? cut.count(rank) : 1) * static_cast<int>(micro_batches);
}

std::string DeviceShards::obstacle() const {
  if (waits_in_layers()) return "batch statistics of the shards pass through host memory";
  const std::int64_t batches = max_batches(options_.cut, micro_batches_);
  if (batches <= kMaxCapturedBatches) return "";
  return "a step has " + std::to_string(batches) +
         " micro-batches of shards, and a graph at most " + std::to_string(kMaxCapturedBatches);
}

int DeviceShards::slots() const {
  if (waits_in_layers()) return DeviceExecutorOptions{}.slots;
  return graph_slots(options_.cut, rank_, micro_batches_, !replicas_);
}

DeviceShards::DeviceShards(const DeviceShardsOptions& options, const ShardReplicas::Parts& parts,
                           std::int64_t micro_batches, bool captured)
    : options_(options),
      rank_(options.rank()),
      count_(options.cut.count(rank_)),
      micro_batches_(micro_batches),
      model_(parts.model),
      tree_(options.cut, rank_, model_.parameters.gradients),
      running_(model_.running, rank_ == 0 && count_ > 1),
      counters_(model_.counters, rank_ == 0 && count_ > 1),
      totals_(static_cast<std::size_t>(options.cut.world()) * max_count(options.cut) *
                  sizeof(ops::BatchTotals),
              model_.running.device(), "workspace"),
      here_(totals_.bytes()) {
  if (layers_that_use_replicas(*parts.plan.graph) == 0) return;
  const ShardReplicas::Exchange exchange{options.statistics, options.device_statistics};
  DeviceExecutorOptions of_executors = parts.executor;
  if (exchange.is_on_devices() && captured)
    of_executors.slots = graph_slots(options_.cut, rank_, micro_batches, false);
  replicas_ = std::make_unique<ShardReplicas>(
      ShardReplicas::Parts{parts.plan, parts.model, parts.context, of_executors, parts.control},
      options_.cut, exchange);
}

std::unique_ptr<DeviceGradientSum> DeviceShards::make_sum(const ModelState& mirror) const {
  if (options_.cut.world() == 1) return nullptr;
  const cuda::MemoryPurpose purpose("averaging");
  const NodeParts parts{.cut = options_.cut,
                        .tree = tree_,
                        .gradients = model_.parameters.gradients,
                        .running = model_.running,
                        .counters = model_.counters,
                        .notes = totals_};
  if (options_.devices != nullptr) return make_node_sum(parts, *options_.devices);
  return make_staged_node_sum(parts, mirror.parameters.gradients, *options_.gradients);
}

// The cut of the whole step, relative to this rank's first sample.
BatchView DeviceShards::part(const StepRequest& request, int shard, std::int64_t m) const {
  const BatchView whole =
      shard_batch_of(request.batch, request.global_count, options_.cut, rank_, shard);
  return micro_batch_of(whole, m, micro_batches_);
}

// Returns the samples of a micro-batch in all shards of all ranks.
std::int64_t DeviceShards::samples_of_all(const StepRequest& request, std::int64_t m) const {
  std::int64_t samples = 0;
  for (int part = 0; part < options_.cut.parts(); ++part) {
    const std::int64_t count =
        base::part_bounds(request.global_count, part, options_.cut.parts()).size();
    samples += base::part_bounds(count, m, micro_batches_).size();
  }
  return samples;
}

DeviceExecutor& DeviceShards::executor(const Step& step, int shard) {
  return replicas_ && shard > 0 ? replicas_->executor(static_cast<std::size_t>(shard))
                                : step.executor;
}

std::span<const int> DeviceShards::stage(const Step& step) {
  slots_.clear();
  for (int shard = 0; shard < count_; ++shard)
    for (std::int64_t m = 0; m < micro_batches_; ++m)
      slots_.push_back(
          executor(step, shard).stage(part(step.request, shard, m), step.numbers, true));
  if (replicas_) replicas_->join_streams();
  return slots_;
}

std::int64_t DeviceShards::batches_at_once() const {
  return replicas_ ? micro_batches_ : count_ * micro_batches_;
}
int DeviceShards::graph_of(std::span<const int> slots) const {
  return slots.front() / static_cast<int>(batches_at_once());
}
int DeviceShards::last_slot(std::span<const int> slots) const {
  return slots[static_cast<std::size_t>(batches_at_once() - 1)];
}

void DeviceShards::release(const Step& step) {
  if (replicas_) replicas_->fork_streams();
  const auto last = static_cast<std::size_t>(batches_at_once() - 1);
  for (std::size_t i = 0; i < step.slots.size(); ++i)
    if (i != last)
      executor(step, static_cast<int>(static_cast<std::int64_t>(i) / micro_batches_))
          .release(step.slots[i]);
}

int DeviceShards::compute(const Step& step, int shard, StepPhases& phases) {
  PhaseTimer timer;
  DeviceExecutor& on = executor(step, shard);
  int slot = 0;
  for (std::int64_t m = 0; m < micro_batches_; ++m) {
    if (!step.slots.empty()) {
      slot = step.slots[static_cast<std::size_t>(shard * micro_batches_ + m)];
    } else {
      if (m > 0) on.release(slot);
      slot = on.stage(part(step.request, shard, m), step.numbers, true);
    }
    if (replicas_) replicas_->set_samples(shard, samples_of_all(step.request, m));
    on.forward(slot, true, /*continues=*/m > 0);
    timer.lap(phases.forward);
    on.backward(slot, m == 0 ? Write::kOverwrite : Write::kAdd, {});
    timer.lap(phases.backward);
  }
  return slot;
}

void DeviceShards::add(const Step& step, int shard, const DeviceExecutor& executor,
                       const FlatBuffer& gradients) {
  cuda::copy_async(totals_.data() + offset_of(rank_, shard), executor.last(),
                   sizeof(ops::BatchTotals), step.context.stream);
  tree_.add(step.context, gradients.flat());
}

int DeviceShards::run(const Step& step, StepPhases& phases) {
  const base::TraceSpan span("start shards on the device");
  tree_.restart();
  return replicas_ ? run_at_once(step, phases) : run_sequentially(step, phases);
}

// All shards change the running statistics, which shall become those of the first one.
int DeviceShards::run_sequentially(const Step& step, StepPhases& phases) {
  void* const stream = step.context.stream;
  int slot = 0;
  for (int shard = 0; shard < count_; ++shard) {
    if (shard > 0 && step.slots.empty()) step.executor.release(slot);
    slot = compute(step, shard, phases);
    add(step, shard, step.executor, model_.parameters.gradients);
    if (shard > 0) continue;
    running_.keep(stream);
    counters_.keep(stream);
  }
  running_.put_back(stream);
  counters_.put_back(stream);
  return slot;
}

// The phases are those of the first shard.
int DeviceShards::run_at_once(const Step& step, StepPhases& phases) {
  int slot = 0;
  replicas_->run([&](std::size_t shard) {
    const int number = static_cast<int>(shard);
    StepPhases not_counted;
    const int last = compute(step, number, shard == 0 ? phases : not_counted);
    if (shard == 0)
      slot = last;
    else if (step.slots.empty())
      executor(step, number).release(last);
  });
  for (int shard = 0; shard < count_; ++shard) {
    const auto s = static_cast<std::size_t>(shard);
    add(step, shard, executor(step, shard),
        (shard == 0 ? model_ : replicas_->model(s)).parameters.gradients);
  }
  return slot;
}

std::size_t DeviceShards::offset_of(int rank, int shard) const {
  return (static_cast<std::size_t>(rank) * max_count(options_.cut) +
          static_cast<std::size_t>(shard)) *
         sizeof(ops::BatchTotals);
}

void DeviceShards::download(void* stream) {
  cuda::copy_async(here_.data(), totals_.data(), totals_.bytes(), stream);
}

void DeviceShards::complete(StepResults& results) {
  const TreePartition& cut = options_.cut;
  results.last = {};
  std::vector<double> losses;
  for (int rank = 0; rank < cut.world(); ++rank)
    for (int shard = 0; shard < cut.count(rank); ++shard) {
      ops::BatchTotals totals;
      std::memcpy(&totals, here_.data() + offset_of(rank, shard), sizeof totals);
      losses.push_back(totals.loss_sum);
      if (rank != rank_) continue;
      results.last.correct += totals.correct;
      results.last.rows += totals.rows;
    }
  reduce_tree(losses.size(),
              [&](std::size_t into, std::size_t from) { losses[into] += losses[from]; });
  if (rank_ == 0) results.last.loss_sum = losses[0];
  for (int shard = 1; replicas_ && shard < count_; ++shard) {
    const BatchResult more = replicas_->executor(static_cast<std::size_t>(shard)).results().total;
    results.total.loss_sum += more.loss_sum;
    results.total.correct += more.correct;
    results.total.rows += more.rows;
  }
}

}  // namespace engine
