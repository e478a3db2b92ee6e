// Gradient accumulation over micro-batches; one of them is the plain case.
#include "engine/train/work/step_work.h"

namespace engine {
namespace {

class AccumulatedWork final : public StepWork {
 public:
  AccumulatedWork(const Plan& plan, ModelState& state, ThreadPool& threads,
                  const AccumulatedWorkOptions& options)
      : micro_batches_(options.micro_batches), executor_(plan, state, threads, options.seed) {
    require(micro_batches_ >= 1, "a step has at least one micro-batch");
    executor_.set_replicas(options.replicas);
  }

  void run(const StepRequest& request, const std::function<void(std::int64_t)>& ready,
           StepPhases& phases) override {
    const BatchView& batch = request.batch;
    PhaseTimer timer;
    BatchResult sum;
    for (std::int64_t m = 0; m < micro_batches_; ++m) {
      const std::int64_t first = batch.count * m / micro_batches_,
                         last = batch.count * (m + 1) / micro_batches_;
      const BatchResult result =
          executor_.forward(batch.slice(first, last - first), /*training=*/true);
      timer.lap(phases.forward);
      // A mean over positions (text) as well as over samples: rows per sample are the same on every
      // rank.
      const double rows_per_sample =
          result.rows > 0 ? static_cast<double>(result.rows) / static_cast<double>(last - first)
                          : 1;
      static const std::function<void(std::int64_t)> kNobody;
      executor_.backward(request.scale / rows_per_sample, m == 0 ? Write::kOverwrite : Write::kAdd,
                         m + 1 == micro_batches_ ? ready : kNobody);
      timer.lap(phases.backward);
      sum.loss_sum += result.loss_sum;
      sum.correct += result.correct;
      sum.rows += result.rows;
    }
    results_.add(sum);
  }
  StepResults results() override { return results_; }

 private:
  const std::int64_t micro_batches_;
  Executor executor_;
  StepResults results_;
};

}  // namespace

std::unique_ptr<StepWork> make_accumulated_work(const Plan& plan, ModelState& state,
                                                ThreadPool& threads,
                                                const AccumulatedWorkOptions& options) {
  return std::make_unique<AccumulatedWork>(plan, state, threads, options);
}

}  // namespace engine
