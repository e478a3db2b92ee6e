// Parameter averaging every K updates: the mean of the replicas, weighted by the samples they have seen since the last one.
#include "engine/averaging/averaging_policy.h"
#include "engine/averaging/bucket_reducer.h"
#include "engine/kernels/optimizer_step.h"

namespace engine {
namespace {

class ParameterAveraging : public AveragingPolicy {
 public:
  ParameterAveraging(backends::Communicator& communicator, ParameterBuffer& parameters, KernelContext& context,
                     const ParameterAveragingOptions& options)
      : parameters_(parameters),
        context_(context),
        options_(options),
        world_size_(communicator.world_size()),
        reducer_(communicator, parameters.values, std::int64_t{1} << 40, /*overlap=*/false) {}

  std::string_view name() const override { return "params"; }
  double loss_scale(const StepCounts& counts) const override {
    return counts.local == 0 ? 0 : 1.0 / static_cast<double>(counts.local);
  }
  void after_update(const StepCounts& counts) override {
    ++updates_;
    ++since_;
    local_samples_ += counts.local;
    global_samples_ += counts.global;
    if (since_ >= options_.every || updates_ <= options_.warmup) synchronize();
  }
  void synchronize() override {
    if (since_ == 0) return;
    // Every sample counts once. Where the data set is smaller than the world and nobody has seen any, all count alike.
    const double weight =
        global_samples_ == 0 ? 1.0 / world_size_ : static_cast<double>(local_samples_) / static_cast<double>(global_samples_);
    kernels::scale(context_, weight, parameters_.values.flat());
    reducer_.ready(parameters_.values.size());
    reducer_.finish();
    since_ = local_samples_ = global_samples_ = 0;
    ++averagings_;
  }
  bool local_optimizer_state() const override { return true; }
  bool together() const override { return since_ == 0; }
  // Saving synchronises first, so the counts since the last averaging are zero there and need no place in a checkpoint.
  std::vector<std::pair<std::string, std::int64_t>> counters() const override {
    return {{"updates", updates_}, {"averagings", averagings_}};
  }
  void restore_counters(const std::vector<std::pair<std::string, std::int64_t>>& counters) override {
    for (const auto& [name, value] : counters) {
      if (name == "updates") updates_ = value;
      if (name == "averagings") averagings_ = value;
    }
  }
  std::int64_t averagings() const override { return averagings_; }
  std::string coverage() const override {
    const auto n = std::to_string(parameters_.values.slots().size());
    return "averaged " + n + "/" + n + " parameters " + std::to_string(averagings_) + " times in " + std::to_string(updates_) +
           " steps";
  }

 private:
  ParameterBuffer& parameters_;
  KernelContext& context_;
  const ParameterAveragingOptions options_;
  const int world_size_;
  BucketReducer reducer_;
  std::int64_t updates_ = 0, averagings_ = 0;
  std::int64_t since_ = 0, local_samples_ = 0, global_samples_ = 0;  // since the last averaging
};

}  // namespace

std::unique_ptr<AveragingPolicy> make_parameter_averaging(backends::Communicator& communicator, ParameterBuffer& parameters,
                                                          KernelContext& context, const ParameterAveragingOptions& options) {
  return std::make_unique<ParameterAveraging>(communicator, parameters, context, options);
}

}  // namespace engine
