// Gradient averaging every step, summed by a fixed tree (--reduction-order canonical, ADR 12).
#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/sums/ordered_tree.h"

namespace engine {
namespace {

class CanonicalAveraging final : public AveragingPolicy, private GradientExchange {
 public:
  CanonicalAveraging(backends::Communicator& communicator, ParameterBuffer& parameters)
      : parameters_(parameters), sum_(communicator) {}

  std::string_view name() const override { return "grad"; }
  double loss_scale(const StepCounts& counts) const override {
    return counts.global == 0 ? 0 : 1.0 / static_cast<double>(counts.global);
  }
  GradientExchange* begin_step(StateHome&) override { return this; }
  void end_step(const StepCounts&, double, StateHome&) override { ++averagings_; }
  PolicyCounters counters() const override { return {{"averagings", averagings_}}; }
  void restore_counters(const PolicyCounters& counters) override {
    averagings_ = find_counter(counters, "averagings", 0);
  }
  std::int64_t averagings() const override { return averagings_; }
  std::int64_t bytes_sent() const override {
    return averagings_ * static_cast<std::int64_t>(parameters_.gradients.bytes());
  }
  std::string coverage() const override {
    const auto n = std::to_string(parameters_.gradients.slots().size());
    return "averaged the gradients of " + n + "/" + n + " parameters in each of " +
           std::to_string(averagings_) + " steps, in canonical order";
  }

 private:
  void ready(std::int64_t /*elements*/) override {}
  void finish() override {
    const FlatBuffer& gradients = parameters_.gradients;
    sum_.sum(gradients.dtype(), gradients.data(), static_cast<std::size_t>(gradients.size()));
  }

  ParameterBuffer& parameters_;
  TreeSum sum_;
  std::int64_t averagings_ = 0;
};

}  // namespace

std::unique_ptr<AveragingPolicy> make_canonical_averaging(backends::Communicator& communicator,
                                                          ParameterBuffer& parameters) {
  return std::make_unique<CanonicalAveraging>(communicator, parameters);
}

}  // namespace engine
