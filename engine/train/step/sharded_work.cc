// Shards are replicas of the model within one rank, each with its own thread; the tree covers those
// of all ranks.
#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/averaging/statistics/replica_statistics.h"
#include "engine/averaging/sums/ordered_tree.h"
#include "engine/train/step/batch_views.h"
#include "engine/train/step/host_step.h"
#include "engine/train/step/shard_team.h"

namespace engine {
namespace {

struct Shard {
  Shard(const Plan& plan, ModelState& main, bool first, const AccumulatedWorkOptions& options)
      : copy(first ? ModelState{} : ModelState::allocate(*plan.graph, plan.options.dtype)),
        state(first ? main : copy),
        pool(1),
        work(plan, state, pool, options) {}

  ModelState copy;
  ModelState& state;
  ThreadPool pool;
  MicroBatches work;
  BatchResult result;
  StepPhases phases;  // phases of the step
};

// Returns the slots of the running statistics that steps read in training, because their layers are
// frozen.
std::vector<std::size_t> still_slots(const Plan& plan, const ModelState& state) {
  std::vector<std::size_t> slots;
  for (const PlanStep& step : plan.steps) {
    if (!step.still) continue;
    const auto owner = static_cast<std::size_t>(buffer_node(*plan.graph, step.node));
    const std::string& node = plan.graph->nodes()[owner].name;
    for (const BufferSpec& spec : step.layer->buffers(plan.graph->input_shapes(step.node)))
      if (const auto slot = state.running.find(node + "." + spec.name)) slots.push_back(*slot);
  }
  return slots;
}

class ShardedWork final : public StepWork {
 public:
  ShardedWork(const HostWorkParts& parts, const ShardedWorkOptions& options)
      : options_(options),
        main_(parts.state),
        rank_(options.gradients == nullptr ? 0 : options.gradients->rank()),
        slots_(parts.threads.physical_threads()),
        still_(still_slots(parts.plan, parts.state)),
        update_(parts) {
    require(parts.plan.options.threads == 1, "a shard computes with one thread");
    const int own = options.cut.count(rank_);
    if (options.statistics != nullptr || (options.gradients == nullptr && own > 1))
      statistics_.emplace(options.cut, options.statistics, slots_);
    for (int s = 0; s < own; ++s)
      shards_.push_back(std::make_unique<Shard>(
          parts.plan, parts.state, s == 0,
          AccumulatedWorkOptions{options.micro_batches, options.seed,
                                 statistics_ ? &statistics_->of_shard(s) : nullptr}));
    if (options.gradients != nullptr) sum_.emplace(options.cut, *options.gradients, note_bytes());
    for (const TreePartition::Node& node : nodes())
      gradients_.push_back(shard_of(node).state.parameters.gradients.data());
    team_.emplace(shards_.size(), [this](std::size_t shard) { compute(shard); });
  }

  void step(const StepRequest& request, StepPhases& phases) override {
    PhaseTimer timer;
    run_shards(request);
    fold_nodes();
    // Shards run concurrently: the first one's forward represents all, and the rest of the time is
    // their backward and the tree.
    double seconds = 0;
    timer.lap(seconds);
    const StepPhases& first = shards_[0]->phases;
    phases.forward += first.forward;
    phases.communication += first.communication;
    phases.backward += std::max(0.0, seconds - first.forward - first.communication);
    const double loss_sum = sum_ ? sum_over_ranks() : shards_[0]->result.loss_sum;
    timer.lap(phases.communication);
    BatchResult result = own_counts();
    result.loss_sum = rank_ == 0 ? loss_sum : 0;
    results_.add(result);
    update_.finish(request, loss_sum, phases);
  }
  StepResults results() override { return results_; }
  StateHome& home() override { return home_; }

 private:
  std::span<const TreePartition::Node> nodes() const { return options_.cut.nodes(rank_); }
  Shard& shard_of(const TreePartition::Node& node) {
    return *shards_[static_cast<std::size_t>(node.first - options_.cut.first(rank_))];
  }

  // The size of the data that ranks exchange in addition to gradients: each rank the loss of its
  // nodes, rank 0 the running statistics and counters of the first part.
  std::size_t note_bytes() const {
    return static_cast<std::size_t>(options_.cut.max_nodes()) * sizeof(double) +
           main_.running.bytes() + main_.counters.bytes();
  }

  void run_shards(const StepRequest& request) {
    request_ = &request;
    team_->run();
    if (failure_) std::rethrow_exception(failure_);
  }

  void compute(std::size_t index) noexcept {
    slots_.acquire();
    try {
      Shard& shard = *shards_[index];
      const FlatBuffer &values = main_.parameters.values, &own = shard.state.parameters.values;
      if (index > 0 && values.bytes() > 0) std::memcpy(own.data(), values.data(), values.bytes());
      if (index > 0) take_still_statistics(shard);
      shard.phases = {};
      const BatchView part = shard_batch_of(request_->batch, request_->global_count, options_.cut,
                                            rank_, static_cast<int>(index));
      shard.result = shard.work.run(part, request_->scale, {}, shard.phases);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      if (statistics_) statistics_->fail(failure_);
    }
    slots_.release();
  }

  // The other statistics belong to each shard, and the first shard may be writing its own.
  void take_still_statistics(Shard& shard) const {
    for (const std::size_t slot : still_) {
      const TensorView from = main_.running.view(slot);
      std::memcpy(shard.state.running.view(slot).data, from.data,
                  static_cast<std::size_t>(from.count()) * size_of(from.dtype));
    }
  }

  // Afterwards the first shard of each node has the sums of the node.
  void fold_nodes() {
    const FlatBuffer& gradients = main_.parameters.gradients;
    for (const TreePartition::Node& node : nodes()) {
      const std::unique_ptr<Shard>* shards =
          &shards_[static_cast<std::size_t>(node.first - options_.cut.first(rank_))];
      reduce_tree(static_cast<std::size_t>(node.count), [&](std::size_t into, std::size_t from) {
        Shard &a = *shards[into], &b = *shards[from];
        add_elements(gradients.dtype(), a.state.parameters.gradients.data(),
                     b.state.parameters.gradients.data(),
                     static_cast<std::size_t>(gradients.size()));
        a.result.loss_sum += b.result.loss_sum;
      });
    }
  }

  BatchResult own_counts() const {
    BatchResult counts;
    for (const auto& shard : shards_) {
      counts.correct += shard->result.correct;
      counts.rows += shard->result.rows;
    }
    return counts;
  }

  // Sums the nodes of all ranks. Returns the loss.
  double sum_over_ranks() {
    std::byte* note = sum_->note().data();
    for (const TreePartition::Node& node : nodes())
      std::memcpy(note + static_cast<std::size_t>(node.index) * sizeof(double),
                  &shard_of(node).result.loss_sum, sizeof(double));
    const FlatBuffer* const buffers[] = {&main_.running, &main_.counters};
    const auto each_buffer = [&](auto call) {
      std::size_t at = static_cast<std::size_t>(options_.cut.max_nodes()) * sizeof(double);
      for (const FlatBuffer* buffer : buffers) {
        if (buffer->bytes() > 0) call(buffer->data(), at, buffer->bytes());
        at += buffer->bytes();
      }
    };
    if (rank_ == 0)
      each_buffer([&](const void* from, std::size_t at, std::size_t bytes) {
        std::memcpy(note + at, from, bytes);
      });
    const FlatBuffer& gradients = main_.parameters.gradients;
    sum_->sum(gradients.dtype(), gradients_, static_cast<std::size_t>(gradients.size()));
    if (rank_ != 0)
      each_buffer([&](void* to, std::size_t at, std::size_t bytes) {
        std::memcpy(to, sum_->note_of(0).data() + at, bytes);
      });
    return fold_losses();
  }

  double fold_losses() {
    const std::span<const TreePartition::Node> all = options_.cut.nodes();
    losses_.resize(all.size());  // allocates only the first time
    const auto loss = [&](const TreePartition::Node& node) -> double& {
      return losses_[static_cast<std::size_t>(&node - all.data())];
    };
    for (const TreePartition::Node& node : all)
      std::memcpy(
          &loss(node),
          sum_->note_of(node.rank).data() + static_cast<std::size_t>(node.index) * sizeof(double),
          sizeof(double));
    options_.cut.fold([&](const TreePartition::Node& into, const TreePartition::Node& from) {
      loss(into) += loss(from);
    });
    return losses_[0];
  }

  const ShardedWorkOptions options_;
  ModelState& main_;
  const int rank_;
  ComputeSlots slots_;
  const std::vector<std::size_t> still_;       // indices of running statistics
  std::optional<ShardStatistics> statistics_;  // none: no layer exchanges statistics
  HostUpdate update_;
  StateHome home_;
  StepResults results_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::optional<TreeSum> sum_;    // none: one rank
  std::vector<void*> gradients_;  // gradients of this rank's nodes
  std::vector<double> losses_;    // losses of all ranks' nodes

  const StepRequest* request_ = nullptr;  // constant while shards run
  std::mutex mutex_;
  std::exception_ptr failure_;     // guarded by the mutex
  std::optional<ShardTeam> team_;  // its threads use all other members
};

}  // namespace

std::unique_ptr<StepWork> make_sharded_work(const HostWorkParts& parts,
                                            const ShardedWorkOptions& options) {
  return std::make_unique<ShardedWork>(parts, options);
}

}  // namespace engine
