// Gradient accumulation over micro-batches; a step without accumulation has one of them.
#include "engine/train/step/host_step.h"

namespace engine {
namespace {

class AccumulatedWork final : public StepWork {
 public:
  AccumulatedWork(const HostWorkParts& parts, const AccumulatedWorkOptions& options)
      : micro_batches_(parts.plan, parts.state, parts.threads, options), update_(parts) {}

  void step(const StepRequest& request, StepPhases& phases) override {
    const BatchResult result =
        micro_batches_.run(request.batch, request.scale, HostUpdate::ready_for(request), phases);
    results_.add(result);
    update_.finish(request, result.loss_sum, phases);
  }
  StepResults results() override { return results_; }
  StateHome& home() override { return home_; }

 private:
  MicroBatches micro_batches_;
  HostUpdate update_;
  StateHome home_;
  StepResults results_;
};

}  // namespace

std::unique_ptr<StepWork> make_accumulated_work(const HostWorkParts& parts,
                                                const AccumulatedWorkOptions& options) {
  return std::make_unique<AccumulatedWork>(parts, options);
}

}  // namespace engine
