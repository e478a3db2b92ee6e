// Averages gradients in every step: each rank scales its loss by 1 / (global samples), so that the
// sum of the gradients is the mean.
#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/sums/bucket_reducer.h"
#include "engine/averaging/sums/gradient_sum.h"

namespace engine {
namespace {

// The common part of both policies below: counts the steps and reports them.
class GradientPolicy : public AveragingPolicy {
 public:
  std::string_view name() const final { return "grad"; }
  double loss_scale(const StepWeights& weights) const final {
    return factor_of_mean(weights.global);
  }
  std::int64_t round() const final { return averagings_; }

  PolicyCounters counters() const final {
    return {{"averagings", averagings_}, {"bytes_sent", bytes_sent()}};
  }
  void restore_counters(const PolicyCounters& counters) final {
    averagings_ = find_counter(counters, "averagings", 0);
    set_bytes_sent(find_counter(counters, "bytes_sent", averagings_ * bytes_each_));
  }
  std::vector<PolicyState> exchange_state() final { return state(); }

  AveragingReport take_report() final {
    const std::string n = std::to_string(gradients_.slots().size());
    return {.averagings = averagings_,
            .bytes_sent = bytes_sent(),
            .coverage = "averaged the gradients of " + n + "/" + n + " parameters in each of " +
                        std::to_string(averagings_) + " steps" + note_};
  }

 protected:
  // `bytes_each`: this rank's payload in each step. `gradients` must outlive this.
  GradientPolicy(const FlatBuffer& gradients, std::size_t bytes_each, std::string note)
      : gradients_(gradients),
        bytes_each_(static_cast<std::int64_t>(bytes_each)),
        note_(std::move(note)) {}

  void count_step() { ++averagings_; }
  std::int64_t bytes_each() const { return bytes_each_; }
  virtual std::int64_t bytes_sent() const = 0;  // since the start
  virtual void set_bytes_sent(std::int64_t bytes) = 0;

 private:
  const FlatBuffer& gradients_;
  const std::int64_t bytes_each_;
  const std::string note_;
  std::int64_t averagings_ = 0;
};

// Sums buckets of gradients in host memory during backward.
class BucketAveraging final : public GradientPolicy {
 public:
  BucketAveraging(std::unique_ptr<GradientSum> sum, const FlatBuffer& gradients,
                  const BucketOptions& buckets)
      : GradientPolicy(gradients, gradients.bytes(), sum->note()),
        sum_(std::move(sum)),
        reducer_(*sum_, gradients, buckets) {}

  GradientExchange* begin_step(StateHome&) override {
    sum_->begin_step(round());
    return &reducer_;
  }
  std::int64_t end_step(const StepCounts&, double, StateHome&) override {
    count_step();
    return 0;
  }
  std::vector<PolicyState> state() override { return sum_->state(); }

 private:
  std::int64_t bytes_sent() const override { return sum_->bytes_sent(); }
  void set_bytes_sent(std::int64_t bytes) override { sum_->set_bytes_sent(bytes); }

  const std::unique_ptr<GradientSum> sum_;
  BucketReducer reducer_;  // uses sum_
};

// Leaves the sums to the step, which computes the gradients: counts the bytes, and has the memory
// of the sums, of which the host has mirrors if they are on a device.
class StepSumAveraging final : public GradientPolicy {
 public:
  StepSumAveraging(const FlatBuffer& gradients, const StepSumOptions& options)
      : GradientPolicy(gradients, options.bytes, options.note), bytes_in_(options.bytes_in) {
    if (options.has_error) error_ = FlatBuffer::like(gradients);
    if (options.has_velocity) velocity_ = FlatBuffer::like(gradients);
    if (options.make_factors) factors_ = options.make_factors();
  }

  std::int64_t end_step(const StepCounts&, double, StateHome&) override {
    bytes_sent_ += bytes_in_ ? static_cast<std::int64_t>(bytes_in_(round())) : bytes_each();
    count_step();
    return 0;
  }
  HomeMemory memory_at_home() override {
    HomeMemory memory;
    for (std::optional<FlatBuffer>* kept : {&error_, &velocity_, &factors_})
      if (*kept) memory.buffers.push_back({.buffer = &**kept, .is_error = true});
    return memory;
  }
  std::vector<PolicyState> state() override {
    std::vector<PolicyState> state;
    if (error_) state.push_back({"gradient_error", &*error_, true});
    if (velocity_) state.push_back({"gradient_velocity", &*velocity_, true});
    if (factors_) state.push_back({"powersgd_factor", &*factors_, false});
    return state;
  }

 private:
  std::int64_t bytes_sent() const override { return bytes_sent_; }
  void set_bytes_sent(std::int64_t bytes) override { bytes_sent_ = bytes; }

  const std::function<std::size_t(std::int64_t)> bytes_in_;
  // State of the step's sum; on a device, mirrors.
  std::optional<FlatBuffer> error_, velocity_, factors_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace

std::unique_ptr<AveragingPolicy> make_gradient_averaging(std::unique_ptr<GradientSum> sum,
                                                         const FlatBuffer& gradients,
                                                         const BucketOptions& buckets) {
  require(sum != nullptr, "gradients are averaged by a sum");
  return std::make_unique<BucketAveraging>(std::move(sum), gradients, buckets);
}

std::unique_ptr<AveragingPolicy> make_step_gradient_averaging(const FlatBuffer& gradients,
                                                              const StepSumOptions& options) {
  return std::make_unique<StepSumAveraging>(gradients, options);
}

}  // namespace engine
