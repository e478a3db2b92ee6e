// The common parts of steps on the CPU: forward and backward in micro-batches, and the end of a
// step.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/train/step/step_work.h"

namespace engine {

// Measures the time in the exchanges of another one, most of which is waiting for other ranks.
class TimedExchange final : public ReplicaExchange {
 public:
  explicit TimedExchange(ReplicaExchange* exchange) : exchange_(exchange) {}
  ReplicaExchange* get() { return exchange_ == nullptr ? nullptr : this; }
  // Moves the time since the last call from `phase` to the communication.
  void move_seconds(double& phase, StepPhases& phases);

  std::int64_t merge_moments(std::int64_t rows, std::span<double> moments) override;
  std::int64_t add(std::int64_t rows, std::span<double> sums) override;

 private:
  ReplicaExchange* const exchange_;
  double seconds_ = 0;
};

using GradientsReady = std::function<void(std::int64_t elements)>;

// One executor that processes a batch in parts.
class MicroBatches {
 public:
  // `plan`, `state` and `threads` are those of Executor and must outlive this.
  MicroBatches(const Plan& plan, ModelState& state, ThreadPool& threads,
               const AccumulatedWorkOptions& options);

  // The state's gradients become those of `batch`, as in StepWork::step(); `ready` is called during
  // the last part's backward. Returns the sums over the batch.
  BatchResult run(const BatchView& batch, double scale, const GradientsReady& ready,
                  StepPhases& phases);

 private:
  const std::int64_t count_;
  const double rows_per_sample_;
  TimedExchange replicas_;
  Executor executor_;
};

// Turns computed gradients into new parameters.
class HostUpdate {
 public:
  explicit HostUpdate(const HostWorkParts& parts);

  // Returns the callback that backward calls; empty if the request has no exchange. Valid during
  // the lifetime of the request.
  static GradientsReady ready_for(const StepRequest& request);
  // `loss_sum` is this rank's.
  void finish(const StepRequest& request, double loss_sum, StepPhases& phases);

 private:
  ParameterBuffer& parameters_;
  Optimizer& optimizer_;
  KernelContext context_;
};

}  // namespace engine
