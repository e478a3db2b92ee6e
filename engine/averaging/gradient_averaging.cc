// Gradient averaging every step: each rank's gradients are scaled by 1 / (global samples) in the loss, so a sum is the mean.
#include "engine/averaging/averaging_policy.h"
#include "engine/averaging/bucket_reducer.h"

namespace engine {
namespace {

class GradientAveraging : public AveragingPolicy {
 public:
  GradientAveraging(backends::Communicator& communicator, ParameterBuffer& parameters, const GradientAveragingOptions& options)
      : parameters_(parameters), reducer_(communicator, parameters.gradients, options.bucket_bytes, options.overlap) {}

  std::string_view name() const override { return "grad"; }
  double loss_scale(const StepCounts& counts) const override {
    return counts.global == 0 ? 0 : 1.0 / static_cast<double>(counts.global);
  }
  void gradients_ready(std::int64_t elements) override { reducer_.ready(elements); }
  void finish_gradients() override {
    reducer_.finish();
    ++averagings_;
  }
  std::vector<std::pair<std::string, std::int64_t>> counters() const override { return {{"averagings", averagings_}}; }
  void restore_counters(const std::vector<std::pair<std::string, std::int64_t>>& counters) override {
    for (const auto& [name, value] : counters)
      if (name == "averagings") averagings_ = value;
  }
  std::int64_t averagings() const override { return averagings_; }
  std::string coverage() const override {
    const auto n = std::to_string(parameters_.gradients.slots().size());
    return "averaged the gradients of " + n + "/" + n + " parameters in each of " + std::to_string(averagings_) + " steps";
  }

 private:
  ParameterBuffer& parameters_;
  BucketReducer reducer_;
  std::int64_t averagings_ = 0;
};

}  // namespace

std::unique_ptr<AveragingPolicy> make_gradient_averaging(backends::Communicator& communicator, ParameterBuffer& parameters,
                                                         const GradientAveragingOptions& options) {
  return std::make_unique<GradientAveraging>(communicator, parameters, options);
}

}  // namespace engine
