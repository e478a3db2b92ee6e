// Gradient averaging every step: each rank's gradients are scaled by 1 / (global samples) in the
// loss, so a sum is the mean.
#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/sums/bucket_reducer.h"
#include "engine/averaging/sums/gradient_sum.h"

namespace engine {
namespace {

class GradientAveraging final : public AveragingPolicy {
 public:
  // `sum` null: gradients are summed where they are computed.
  GradientAveraging(std::unique_ptr<GradientSum> sum, const FlatBuffer& gradients,
                    const BucketOptions& buckets)
      : gradients_(gradients), sum_(std::move(sum)) {
    if (sum_ != nullptr) reducer_.emplace(*sum_, gradients, buckets);
  }

  std::string_view name() const override { return "grad"; }
  double loss_scale(const StepCounts& counts) const override {
    return counts.global == 0 ? 0 : 1.0 / static_cast<double>(counts.global);
  }
  GradientExchange* begin_step(StateHome&) override { return reducer_ ? &*reducer_ : nullptr; }
  void end_step(const StepCounts&, double, StateHome&) override { ++averagings_; }

  PolicyCounters counters() const override {
    return {{"averagings", averagings_}, {"bytes_sent", bytes_sent()}};
  }
  void restore_counters(const PolicyCounters& counters) override {
    averagings_ = find_counter(counters, "averagings", 0);
    if (sum_ != nullptr) sum_->set_bytes_sent(find_counter(counters, "bytes_sent", whole_bytes()));
  }
  std::vector<PolicyState> state() override {
    return sum_ != nullptr ? sum_->state() : std::vector<PolicyState>{};
  }

  AveragingReport take_report() override {
    const std::string n = std::to_string(gradients_.slots().size());
    return {.averagings = averagings_,
            .bytes_sent = bytes_sent(),
            .coverage = "averaged the gradients of " + n + "/" + n + " parameters in each of " +
                        std::to_string(averagings_) + " steps" +
                        (sum_ != nullptr ? sum_->note() : ", on the device")};
  }

 private:
  std::int64_t whole_bytes() const {
    return averagings_ * static_cast<std::int64_t>(gradients_.bytes());
  }
  std::int64_t bytes_sent() const { return sum_ != nullptr ? sum_->bytes_sent() : whole_bytes(); }

  const FlatBuffer& gradients_;
  std::unique_ptr<GradientSum> sum_;
  std::optional<BucketReducer> reducer_;  // of sum_
  std::int64_t averagings_ = 0;
};

}  // namespace

std::unique_ptr<AveragingPolicy> make_gradient_averaging(std::unique_ptr<GradientSum> sum,
                                                         const FlatBuffer& gradients,
                                                         const BucketOptions& buckets) {
  require(sum != nullptr, "gradients are averaged by a sum");
  return std::make_unique<GradientAveraging>(std::move(sum), gradients, buckets);
}

std::unique_ptr<AveragingPolicy> make_device_gradient_averaging(const FlatBuffer& gradients) {
  return std::make_unique<GradientAveraging>(nullptr, gradients, BucketOptions{});
}

}  // namespace engine
