// What works on the CPU share: forward and backward in micro-batches, and the end of a step.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/train/step/step_work.h"

namespace engine {

using GradientsReady = std::function<void(std::int64_t elements)>;

// One executor that takes a batch in parts.
class MicroBatches {
 public:
  // `plan`, `state` and `threads` as Executor has them, which outlive this.
  MicroBatches(const Plan& plan, ModelState& state, ThreadPool& threads,
               const AccumulatedWorkOptions& options);

  // The state's gradients become those of `batch`, as StepWork::step() has them; `ready` is told
  // during the last part's backward. Returns the sums over the batch.
  BatchResult run(const BatchView& batch, double scale, const GradientsReady& ready,
                  StepPhases& phases);

 private:
  const std::int64_t count_;
  Executor executor_;
};

// Gradients that have been computed, to new parameters.
class HostUpdate {
 public:
  explicit HostUpdate(const HostWorkParts& parts);

  // Whom backward tells; empty where the request has no exchange. Valid as long as the request.
  static GradientsReady ready_for(const StepRequest& request);
  // `loss_sum` of this rank.
  void finish(const StepRequest& request, double loss_sum, StepPhases& phases);

 private:
  ParameterBuffer& parameters_;
  Optimizer& optimizer_;
  KernelContext context_;
};

}  // namespace engine
