// Gradient averaging every step: each rank's gradients are scaled by 1 / (global samples) in the
// loss, so a sum is the mean.
#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/sums/bucket_reducer.h"
#include "engine/averaging/sums/gradient_sum.h"

namespace engine {
namespace {

class GradientAveraging final : public AveragingPolicy, private GradientExchange {
 public:
  GradientAveraging(std::unique_ptr<GradientSum> sum, ParameterBuffer& parameters,
                    const GradientAveragingOptions& options)
      : parameters_(parameters), sum_(std::move(sum)) {
    if (!sum_->whole())
      reducer_.emplace(*sum_, parameters.gradients, options.bucket_bytes, options.overlap);
  }

  std::string_view name() const override { return "grad"; }
  double loss_scale(const StepCounts& counts) const override {
    return counts.global == 0 ? 0 : 1.0 / static_cast<double>(counts.global);
  }
  GradientExchange* begin_step(StateHome&) override { return this; }
  void end_step(const StepCounts&, double, StateHome&) override { ++averagings_; }
  PolicyCounters counters() const override {
    return {{"averagings", averagings_}, {"bytes_sent", sum_->bytes_sent()}};
  }
  void restore_counters(const PolicyCounters& counters) override {
    averagings_ = find_counter(counters, "averagings", 0);
    sum_->set_bytes_sent(find_counter(counters, "bytes_sent", 0));
  }
  std::vector<PolicyState> state() override { return sum_->state(); }
  std::int64_t averagings() const override { return averagings_; }
  std::string coverage() const override {
    const auto n = std::to_string(parameters_.gradients.slots().size());
    const std::string how = sum_->name().empty() ? "" : " (" + std::string(sum_->name()) + ")";
    return "averaged the gradients of " + n + "/" + n + " parameters in each of " +
           std::to_string(averagings_) + " steps" + how;
  }
  std::int64_t bytes_sent() const override { return sum_->bytes_sent(); }

 private:
  void ready(std::int64_t elements) override {
    if (reducer_) reducer_->ready(elements);
  }
  void finish() override {
    if (reducer_) {
      reducer_->finish();
    } else {
      sum_->sum(0, parameters_.gradients.size());
    }
  }

  ParameterBuffer& parameters_;
  std::unique_ptr<GradientSum> sum_;
  std::int64_t averagings_ = 0;
  std::optional<BucketReducer> reducer_;  // none: all elements at once
};

}  // namespace

std::unique_ptr<AveragingPolicy> make_gradient_averaging(std::unique_ptr<GradientSum> sum,
                                                         ParameterBuffer& parameters,
                                                         const GradientAveragingOptions& options) {
  return std::make_unique<GradientAveraging>(std::move(sum), parameters, options);
}

}  // namespace engine
