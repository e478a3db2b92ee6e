// Shards: replicas of the model within one rank, a thread each, and the tree over their gradients.
#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "engine/averaging/sums/ordered_tree.h"
#include "engine/averaging/sums/replica_statistics.h"
#include "engine/train/step/host_step.h"

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
  StepPhases phases;   // of the step
  std::thread thread;  // of every shard but the first, which the caller runs
};

class ShardedWork final : public StepWork {
 public:
  ShardedWork(const HostWorkParts& parts, const ShardedWorkOptions& options)
      : options_(options),
        main_(parts.state),
        slots_(parts.threads.physical_threads()),
        statistics_(options.own, slots_, options.replicas),
        update_(parts) {
    require(parts.plan.options.threads == 1, "a shard computes with one thread");
    require(options.first >= 0 && options.own >= 1 && options.first + options.own <= options.shards,
            "shards of this rank");
    for (int s = 0; s < options.own; ++s)
      shards_.push_back(std::make_unique<Shard>(
          parts.plan, parts.state, s == 0,
          AccumulatedWorkOptions{options.micro_batches, options.seed,
                                 exchanges() ? &statistics_.of_shard(s) : nullptr}));
    try {
      for (std::size_t s = 1; s < shards_.size(); ++s)
        shards_[s]->thread = std::thread([this, s] { serve(s); });
    } catch (...) {  // no further thread can be started
      join();
      throw;
    }
  }

  ~ShardedWork() override { join(); }

  void step(const StepRequest& request, StepPhases& phases) override {
    PhaseTimer timer;
    run_shards(request);
    const BatchResult result = fold();
    results_.add(result);
    // Shards run side by side: the first one's forward stands for all, and the rest of the time is
    // their backward and the tree.
    double seconds = 0;
    timer.lap(seconds);
    phases.forward += shards_[0]->phases.forward;
    phases.backward += std::max(0.0, seconds - shards_[0]->phases.forward);
    if (request.exchange != nullptr) request.exchange->ready(main_.parameters.gradients.size());
    update_.finish(request, result.loss_sum, phases);
  }
  StepResults results() override { return results_; }
  StateHome& home() override { return home_; }

 private:
  void join() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (const auto& shard : shards_)
      if (shard->thread.joinable()) shard->thread.join();
  }

  bool exchanges() const { return options_.own > 1 || options_.replicas != nullptr; }

  void run_shards(const StepRequest& request) {
    {
      const std::lock_guard lock(mutex_);
      request_ = &request;
      running_ = shards_.size() - 1;
      ++step_;
    }
    changed_.notify_all();
    compute(0);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_ == 0; });
    if (failure_) std::rethrow_exception(failure_);
  }

  void serve(std::size_t shard) {
    std::uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || step_ != seen; });
      if (stop_) return;
      seen = step_;
      lock.unlock();
      compute(shard);
      lock.lock();
      if (--running_ == 0) changed_.notify_all();
    }
  }

  void compute(std::size_t index) noexcept {
    slots_.acquire();
    try {
      Shard& shard = *shards_[index];
      const FlatBuffer &values = main_.parameters.values, &own = shard.state.parameters.values;
      if (index > 0 && values.bytes() > 0) std::memcpy(own.data(), values.data(), values.bytes());
      const std::int64_t base = cut(0), first = cut(index), last = cut(index + 1);
      shard.phases = {};
      const BatchView part = request_->batch.slice(first - base, last - first);
      shard.result = shard.work.run(part, request_->scale, {}, shard.phases);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      statistics_.fail(failure_);
    }
    slots_.release();
  }

  // Where this rank's part `index` begins among the samples of the whole step.
  std::int64_t cut(std::size_t index) const {
    return request_->global_count * (options_.first + static_cast<std::int64_t>(index)) /
           options_.shards;
  }

  BatchResult fold() {
    const FlatBuffer& gradients = main_.parameters.gradients;
    fold_tree(shards_.size(), [&](std::size_t into, std::size_t from) {
      Shard &a = *shards_[into], &b = *shards_[from];
      add_elements(gradients.dtype(), a.state.parameters.gradients.data(),
                   b.state.parameters.gradients.data(), static_cast<std::size_t>(gradients.size()));
      a.result.loss_sum += b.result.loss_sum;
      a.result.correct += b.result.correct;
      a.result.rows += b.result.rows;
    });
    return shards_[0]->result;
  }

  const ShardedWorkOptions options_;
  ModelState& main_;
  ComputeSlots slots_;
  ShardStatistics statistics_;
  HostUpdate update_;
  StateHome home_;
  StepResults results_;
  std::vector<std::unique_ptr<Shard>> shards_;

  std::mutex mutex_;  // guards what follows; the step's inputs are constant while shards run
  std::condition_variable changed_;
  const StepRequest* request_ = nullptr;
  std::uint64_t step_ = 0;
  std::size_t running_ = 0;
  bool stop_ = false;
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<StepWork> make_sharded_work(const HostWorkParts& parts,
                                            const ShardedWorkOptions& options) {
  return std::make_unique<ShardedWork>(parts, options);
}

}  // namespace engine
