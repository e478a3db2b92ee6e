// Averages gradients in every step: each rank scales its loss by 1 / (global samples), so that the
// sum of the gradients is the mean.
#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/sums/bucket_reducer.h"
#include "engine/averaging/sums/gradient_sum.h"

namespace engine {
namespace {

class GradientAveraging final : public AveragingPolicy {
 public:
  GradientAveraging(std::unique_ptr<GradientSum> sum, const FlatBuffer& gradients,
                    const BucketOptions& buckets)
      : gradients_(gradients),
        bytes_each_(static_cast<std::int64_t>(gradients.bytes())),
        note_(sum->note()),
        sum_(std::move(sum)) {
    reducer_.emplace(*sum_, gradients, buckets);
  }
  // The gradients are summed where they are computed.
  GradientAveraging(const FlatBuffer& gradients, const StepSumOptions& options)
      : gradients_(gradients),
        bytes_each_(static_cast<std::int64_t>(options.bytes)),
        note_(options.note) {
    if (options.has_error) error_ = FlatBuffer::like(gradients);
  }

  std::string_view name() const override { return "grad"; }
  double loss_scale(const StepWeights& weights) const override {
    return factor_of_mean(weights.global);
  }
  GradientExchange* begin_step(StateHome&) override {
    if (sum_ != nullptr) sum_->begin_step(averagings_);
    return reducer_ ? &*reducer_ : nullptr;
  }
  std::int64_t round() const override { return averagings_; }
  std::int64_t end_step(const StepCounts&, double, StateHome&) override {
    ++averagings_;
    bytes_of_steps_ += bytes_each_;
    return 0;
  }
  HomeMemory memory_at_home() override {
    if (!error_) return {};
    return {.buffers = {{.buffer = &*error_, .is_error = true}}};
  }

  PolicyCounters counters() const override {
    return {{"averagings", averagings_}, {"bytes_sent", bytes_sent()}};
  }
  void restore_counters(const PolicyCounters& counters) override {
    averagings_ = find_counter(counters, "averagings", 0);
    bytes_of_steps_ = find_counter(counters, "bytes_sent", averagings_ * bytes_each_);
    if (sum_ != nullptr) sum_->set_bytes_sent(bytes_of_steps_);
  }
  std::vector<PolicyState> exchange_state() override { return state(); }
  std::vector<PolicyState> state() override {
    if (error_) return {{"gradient_error", &*error_, true}};
    return sum_ != nullptr ? sum_->state() : std::vector<PolicyState>{};
  }

  AveragingReport take_report() override {
    const std::string n = std::to_string(gradients_.slots().size());
    return {.averagings = averagings_,
            .bytes_sent = bytes_sent(),
            .coverage = "averaged the gradients of " + n + "/" + n + " parameters in each of " +
                        std::to_string(averagings_) + " steps" + note_};
  }

 private:
  std::int64_t bytes_sent() const { return sum_ != nullptr ? sum_->bytes_sent() : bytes_of_steps_; }

  const FlatBuffer& gradients_;
  const std::int64_t bytes_each_;  // per step
  const std::string note_;
  std::unique_ptr<GradientSum> sum_;      // null: the step sums the gradients
  std::optional<BucketReducer> reducer_;  // uses sum_
  std::optional<FlatBuffer> error_;       // of the step's sum; on a device, the mirror
  std::int64_t averagings_ = 0;
  std::int64_t bytes_of_steps_ = 0;  // without sum_
};

}  // namespace

std::unique_ptr<AveragingPolicy> make_gradient_averaging(std::unique_ptr<GradientSum> sum,
                                                         const FlatBuffer& gradients,
                                                         const BucketOptions& buckets) {
  require(sum != nullptr, "gradients are averaged by a sum");
  return std::make_unique<GradientAveraging>(std::move(sum), gradients, buckets);
}

std::unique_ptr<AveragingPolicy> make_step_gradient_averaging(const FlatBuffer& gradients,
                                                              const StepSumOptions& options) {
  return std::make_unique<GradientAveraging>(gradients, options);
}

}  // namespace engine
