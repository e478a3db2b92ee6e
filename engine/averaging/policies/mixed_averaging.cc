// Combines averaging of gradients and of parameters: a warm-up with gradient averaging, and islands
// whose ranks stay equal.
#include <algorithm>

#include "engine/averaging/policies/averaging_policies.h"

namespace engine {
namespace {

void add_prefixed(const AveragingPolicy* part, const std::string& prefix,
                  PolicyCounters& counters) {
  if (part == nullptr) return;
  for (const auto& [name, value] : part->counters()) counters.emplace_back(prefix + name, value);
}

PolicyCounters without_prefix(const PolicyCounters& counters, std::string_view prefix) {
  PolicyCounters of_part;
  for (const auto& [name, value] : counters)
    if (name.starts_with(prefix)) of_part.emplace_back(name.substr(prefix.size()), value);
  return of_part;
}

class MixedAveraging final : public AveragingPolicy {
 public:
  explicit MixedAveraging(MixedAveragingOptions options) : p_(std::move(options)) {
    require(p_.parameters != nullptr && (p_.warmup == 0 || p_.all != nullptr),
            "a mixed policy without its parts");
  }

  std::string_view name() const override { return p_.name; }
  double loss_scale(const StepWeights& weights) const override {
    if (warming_up()) return p_.all->loss_scale(weights);
    if (p_.island == nullptr) return p_.parameters->loss_scale(weights);
    return factor_of_mean(weights.island);
  }
  GradientExchange* begin_step(StateHome& home) override {
    if (!warming_up()) static_cast<void>(p_.parameters->begin_step(home));
    AveragingPolicy* gradients = of_gradients();
    return gradients == nullptr ? nullptr : gradients->begin_step(home);
  }
  // The other policy's memory may change meanwhile, on the thread of its own exchange.
  std::vector<PolicyState> exchange_state() override {
    AveragingPolicy* gradients = of_gradients();
    return gradients == nullptr ? std::vector<PolicyState>{} : gradients->exchange_state();
  }
  std::int64_t end_step(const StepCounts& counts, double lr, StateHome& home) override {
    AveragingPolicy* const gradients = of_gradients();
    const bool warms_up = warming_up();
    ++updates_;  // first, as in the parts: the update is done even if an averaging fails
    if (gradients != nullptr) gradients->end_step(counts, lr, home);
    const std::int64_t skipped = warms_up ? 0 : p_.parameters->end_step(counts, lr, home);
    updates_ += skipped;
    return skipped;
  }
  HomeMemory memory_at_home() override { return p_.parameters->memory_at_home(); }
  Coupling coupling() const override {
    const Coupling coupling = p_.parameters->coupling();
    return {.steps_alone = of_gradients() == nullptr && coupling.steps_alone,
            .stays_apart = !warming_up() && coupling.stays_apart,
            .lone = warming_up() ? LoneState::kLastStep : coupling.lone,
            .gradients = warming_up()           ? GradientRanks::kAll
                         : p_.island != nullptr ? GradientRanks::kIsland
                                                : GradientRanks::kNone};
  }
  // During the warm-up this does nothing.
  void synchronize(StateHome& home) override { p_.parameters->synchronize(home); }
  bool is_in_sync() const override { return p_.parameters->is_in_sync(); }
  std::int64_t samples_since_sync() const override { return p_.parameters->samples_since_sync(); }
  RankDifferences differences() const override { return p_.parameters->differences(); }

  PolicyCounters counters() const override {
    PolicyCounters counters{{"updates", updates_}};
    add_prefixed(p_.all.get(), "all.", counters);
    add_prefixed(p_.island.get(), "island.", counters);
    for (const auto& counter : p_.parameters->counters())
      if (counter.first != "updates") counters.push_back(counter);
    return counters;
  }
  void restore_counters(const PolicyCounters& counters) override {
    updates_ = find_counter(counters, "updates", 0);
    if (p_.all != nullptr) p_.all->restore_counters(without_prefix(counters, "all."));
    if (p_.island != nullptr) p_.island->restore_counters(without_prefix(counters, "island."));
    PolicyCounters of_parameters = counters;
    for (auto& [name, value] : of_parameters)
      if (name == "updates")
        value = std::max<std::int64_t>(0, updates_ - p_.warmup);
      else if (name == "averagings" && updates_ <= p_.warmup)
        value = 0;  // of an earlier policy
    p_.parameters->restore_counters(of_parameters);
  }
  std::vector<PolicyState> state() override {
    std::vector<PolicyState> state = p_.parameters->state();
    if (p_.all != nullptr)
      for (PolicyState& of_all : p_.all->state()) state.push_back(std::move(of_all));
    return state;
  }

  AveragingReport take_report() override {
    AveragingReport report = p_.parameters->take_report();
    if (p_.all != nullptr) {
      const AveragingReport of_all = p_.all->take_report();
      report.averagings += of_all.averagings;
      report.bytes_sent += of_all.bytes_sent;
      report.coverage = of_all.coverage + ", then " + report.coverage;
    }
    if (p_.island != nullptr) {
      const AveragingReport within = p_.island->take_report();
      report.bytes_sent += within.bytes_sent;
      report.coverage += "; within " + p_.island_text + ", " + within.coverage;
    }
    return report;
  }

 private:
  bool warming_up() const { return updates_ < p_.warmup; }
  AveragingPolicy* of_gradients() const { return warming_up() ? p_.all.get() : p_.island.get(); }

  MixedAveragingOptions p_;
  std::int64_t updates_ = 0;
};

}  // namespace

std::unique_ptr<AveragingPolicy> make_mixed_averaging(MixedAveragingOptions options) {
  return std::make_unique<MixedAveraging>(std::move(options));
}

}  // namespace engine
