// The policy that averages nothing.
#include "engine/averaging/policies/averaging_policy.h"

namespace engine {
namespace {

class NoAveraging final : public AveragingPolicy {
 public:
  explicit NoAveraging(int world_size) : world_size_(world_size) {}
  std::string_view name() const override { return "none"; }
  double loss_scale(const StepWeights& weights) const override {
    return factor_of_mean(weights.local);
  }
  Coupling coupling() const override {
    return {.lone = world_size_ > 1 ? LoneState::kIndependent : LoneState::kLastStep};
  }
  RankDifferences differences() const override { return {world_size_ > 1, world_size_ > 1}; }
  // Earlier starts of the run may have averaged.
  PolicyCounters counters() const override {
    return bytes_before_ > 0 ? PolicyCounters{{"bytes_sent", bytes_before_}} : PolicyCounters{};
  }
  void restore_counters(const PolicyCounters& counters) override {
    bytes_before_ = find_counter(counters, "bytes_sent", 0);
  }
  AveragingReport take_report() override {
    return {.bytes_sent = bytes_before_,
            .coverage = world_size_ == 1
                            ? "one replica: nothing to average"
                            : "nothing was averaged (--sync none): " + std::to_string(world_size_) +
                                  " independent replicas"};
  }

 private:
  int world_size_;
  std::int64_t bytes_before_ = 0;
};

}  // namespace

bool AveragingPolicy::is_in_sync() const {
  const RankDifferences differ = differences();
  return !differ.optimizer_states && !differ.parameters;
}

std::unique_ptr<AveragingPolicy> make_no_averaging(int world_size) {
  return std::make_unique<NoAveraging>(world_size);
}

std::int64_t find_counter(const PolicyCounters& counters, std::string_view name,
                          std::int64_t fallback) {
  for (const auto& [key, value] : counters)
    if (key == name) return value;
  return fallback;
}

}  // namespace engine
