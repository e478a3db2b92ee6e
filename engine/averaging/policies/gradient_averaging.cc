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
        bytes_in_(options.bytes_in),
        note_(options.note) {
    if (options.has_error) error_ = FlatBuffer::like(gradients);
    if (options.has_velocity) velocity_ = FlatBuffer::like(gradients);
    if (options.make_factors) factors_ = options.make_factors();
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
    bytes_of_steps_ += bytes_in_ ? static_cast<std::int64_t>(bytes_in_(averagings_)) : bytes_each_;
    ++averagings_;
    return 0;
  }
  HomeMemory memory_at_home() override {
    HomeMemory memory;
    for (std::optional<FlatBuffer>* kept : {&error_, &velocity_, &factors_})
      if (*kept) memory.buffers.push_back({.buffer = &**kept, .is_error = true});
    return memory;
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
    std::vector<PolicyState> state = sum_ != nullptr ? sum_->state() : std::vector<PolicyState>{};
    if (error_) state.push_back({"gradient_error", &*error_, true});
    if (velocity_) state.push_back({"gradient_velocity", &*velocity_, true});
    if (factors_) state.push_back({"powersgd_factor", &*factors_, false});
    return state;
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
  const std::function<std::size_t(std::int64_t)> bytes_in_ = {};
  const std::string note_;
  std::unique_ptr<GradientSum> sum_;      // null: the step sums the gradients
  std::optional<BucketReducer> reducer_;  // uses sum_
  // What the step's sum keeps; on a device, mirrors.
  std::optional<FlatBuffer> error_, velocity_, factors_;
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
