// Runs micro-batches, then the exchange and the update. A step without accumulation has one
// micro-batch.
#include "engine/train/step/host_step.h"

#include <optional>
#include <utility>

#include "engine/train/step/batch_views.h"
#include "io/base/time/trace.h"

namespace engine {

std::int64_t TimedExchange::merge_moments(std::int64_t rows, std::span<double> moments) {
  PhaseTimer timer;
  const std::int64_t all = exchange_->merge_moments(rows, moments);
  timer.lap(seconds_);
  return all;
}

std::int64_t TimedExchange::add(std::int64_t rows, std::span<double> sums) {
  PhaseTimer timer;
  const std::int64_t all = exchange_->add(rows, sums);
  timer.lap(seconds_);
  return all;
}

void TimedExchange::move_seconds(double& phase, StepPhases& phases) {
  const double seconds = std::exchange(seconds_, 0);
  phase -= seconds;
  phases.communication += seconds;
}

MicroBatches::MicroBatches(const Plan& plan, ModelState& state, ThreadPool& threads,
                           const AccumulatedWorkOptions& options)
    : count_(options.micro_batches),
      rows_per_sample_(static_cast<double>(
          plan.tensors[static_cast<std::size_t>(plan.loss)].item_shape.count())),
      replicas_(options.replicas),
      executor_(plan, state, threads, options.seed) {
  require(count_ >= 1, "a step has at least one micro-batch");
  executor_.set_replicas(replicas_.get());
}

BatchResult MicroBatches::run(const BatchView& batch, double scale, const GradientsReady& ready,
                              StepPhases& phases) {
  static const GradientsReady kNobody;
  PhaseTimer timer;
  BatchResult sum;
  for (std::int64_t m = 0; m < count_; ++m) {
    std::optional<base::TraceSpan> span(std::in_place, "forward");
    const BatchResult result =
        executor_.forward(micro_batch_of(batch, m, count_), /*training=*/true);
    timer.lap(phases.forward);
    replicas_.move_seconds(phases.forward, phases);
    span.emplace("backward");
    // The mean is over positions (text) as well as over samples: the number of rows per sample is
    // the same on every rank.
    executor_.backward(scale / rows_per_sample_, m == 0 ? Write::kOverwrite : Write::kAdd,
                       m + 1 == count_ ? ready : kNobody);
    timer.lap(phases.backward);
    replicas_.move_seconds(phases.backward, phases);
    sum.loss_sum += result.loss_sum;
    sum.correct += result.correct;
    sum.rows += result.rows;
  }
  return sum;
}

HostUpdate::HostUpdate(const HostWorkParts& parts)
    : parameters_(parts.state.parameters), optimizer_(parts.optimizer) {
  context_.threads = &parts.threads;
}

GradientsReady HostUpdate::ready_for(const StepRequest& request) {
  if (request.exchange == nullptr) return {};
  return [exchange = request.exchange](std::int64_t elements) { exchange->ready(elements); };
}

void HostUpdate::finish(const StepRequest& request, double loss_sum, StepPhases& phases) {
  PhaseTimer timer;
  if (request.exchange != nullptr) {
    const base::TraceSpan span("wait for averaging");
    request.exchange->finish();
  }
  timer.lap(phases.communication);
  const base::TraceSpan span("update");
  double factor = 1;
  bool wanted = true;
  if (request.clip_grad > 0 || request.may_update != nullptr) {
    const FlatBuffer& gradients = parameters_.gradients;
    const double norm = request.exchange != nullptr ? request.exchange->norm(context_, gradients)
                                                    : gradient_norm(context_, gradients);
    factor = clip_factor(norm, request.clip_grad);
    wanted = request.may_update == nullptr || (*request.may_update)(norm, loss_sum);
  }
  if (wanted)
    optimizer_.step(context_, request.lr, factor, parameters_.gradients, parameters_.values);
  timer.lap(phases.update);
}

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
