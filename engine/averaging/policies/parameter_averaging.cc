// Averages parameters every K updates: it computes the mean of the replicas, weighted by the
// samples since the last averaging, and applies the optional outer step.
#include <algorithm>
#include <bit>

#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/policies/mean_report.h"
#include "engine/averaging/policies/outer_rate.h"
#include "engine/averaging/policies/outer_step.h"
#include "engine/averaging/policies/sample_count.h"
#include "engine/averaging/sums/replica_mean.h"

namespace engine {
namespace {

// Returns the buffers that averagings include besides the parameters.
std::vector<FlatBuffer*> further_buffers(const ParameterAveragingOptions& options) {
  std::vector<FlatBuffer*> further;
  for (const AveragedState& state : options.states) further.push_back(state.buffer);
  if (options.running != nullptr) further.push_back(options.running);
  return further;
}

class ParameterAveraging final : public AveragingPolicy {
 public:
  ParameterAveraging(backends::Communicator& communicator, ParameterBuffer& parameters,
                     KernelContext& context, const ParameterAveragingOptions& options)
      : parameters_(parameters),
        options_(options),
        world_size_(communicator.world_size()),
        mean_(communicator, context, parameters, further_buffers(options), options.lossy) {
    included_.reserve(options.states.size() + 1);
    if (options.outer) outer_.emplace(parameters, context, *options.outer);
  }

  std::string_view name() const override { return options_.name; }
  double loss_scale(const StepWeights& weights) const override {
    return factor_of_mean(weights.local);
  }
  GradientExchange* begin_step(StateHome& home) override {
    take_missed_step(home);
    if (!apart_ && mean_.needs_start()) {
      const StateUse use(home, mean_.fits_device());
      mean_.start(mean_.all(), parameters_.values.part(0, mean_.all().count), use.math());
    }
    if (outer_ && !outer_->started()) {
      const StateUse use(home, mean_.fits_device());
      outer_->start(use.math());
    }
    return nullptr;
  }
  std::int64_t end_step(const StepCounts& counts, double lr, StateHome& home) override {
    ++updates_;
    apart_ = true;
    samples_.add(counts);
    if (!options_.schedule.due(updates_)) return 0;
    const StateUse use(home, mean_.fits_device());
    if (outer_) missed_rate_ = lr;
    average(use.math(), options_.schedule.count(0, updates_));
    take_outer_step(use);
    return 0;
  }
  HomeMemory memory_at_home() override {
    if (!mean_.fits_device()) return {};
    std::vector<HomeBuffer> buffers = mean_.buffers_at_home();
    if (outer_)
      for (const HomeBuffer& buffer : outer_->buffers_at_home()) buffers.push_back(buffer);
    return {.buffers = std::move(buffers)};
  }
  Coupling coupling() const override { return {.steps_alone = true, .lone = LoneState::kLastMean}; }
  void synchronize(StateHome& home) override {
    take_missed_step(home);
    if (!apart_) return;
    const StateUse use(home, mean_.fits_device());
    average(use.math(), std::nullopt);
  }
  RankDifferences differences() const override {
    return {.optimizer_states = !options_.all_states};
  }
  bool is_in_sync() const override { return !apart_; }
  std::int64_t samples_since_sync() const override {
    return apart_ ? std::max<std::int64_t>(1, samples_.local) : 0;
  }
  // Saving synchronizes first, so the number of samples since the last averaging is always zero in
  // a checkpoint and is not stored.
  PolicyCounters counters() const override {
    PolicyCounters counters{
        {"updates", updates_}, {"averagings", averagings_}, {"bytes_sent", mean_.bytes_sent()}};
    if (outer_) outer_->add_counters(counters);
    if (missed_rate_)
      counters.emplace_back(kMissedRate, std::bit_cast<std::int64_t>(*missed_rate_));
    return counters;
  }
  void restore_counters(const PolicyCounters& counters) override {
    updates_ = find_counter(counters, "updates", 0);
    averagings_ = find_counter(counters, "averagings", 0);
    mean_.set_bytes_sent(find_counter(counters, "bytes_sent", 0));
    if (!outer_) return;
    outer_->restore_counters(counters);
    const std::int64_t rate = find_counter(counters, kMissedRate, kNoRate);
    missed_rate_.reset();
    if (rate != kNoRate) missed_rate_ = std::bit_cast<double>(rate);
  }
  std::vector<PolicyState> state() override {
    std::vector<PolicyState> state = outer_ ? outer_->state() : std::vector<PolicyState>{};
    for (PolicyState& of_mean : mean_.state()) state.push_back(std::move(of_mean));
    return state;
  }
  AveragingReport take_report() override { return report_of(mean_, averagings_, coverage()); }

 private:
  static constexpr const char* kMissedRate = "missed_outer_step";  // the bits of the inner rate
  static constexpr std::int64_t kNoRate = -1;                      // the bits of no number

  void take_outer_step(const StateUse& use) {
    if (outer_ && missed_rate_)
      outer_->apply(*missed_rate_, period_at(options_.schedule, updates_), use.math());
    missed_rate_.reset();
  }
  // If a rank is lost in an averaging of the schedule, the parameters become the mean of the
  // remaining ranks, which then take the outer step.
  void take_missed_step(StateHome& home) {
    if (apart_ || !missed_rate_) return;
    const StateUse use(home, mean_.fits_device());
    take_outer_step(use);
  }
  // The `scheduled`-th averaging of the schedule, or another one.
  void average(StateMath* home, std::optional<std::int64_t> scheduled) {
    included_.clear();
    for (const auto& [buffer, every] : options_.states)
      if (every == 1 || (scheduled && *scheduled % every == 0)) included_.push_back(buffer);
    if (options_.running != nullptr) included_.push_back(options_.running);
    const double weight = samples_.weight(world_size_);
    mean_.average(weight, averagings_, included_, {.home = home});
    apart_ = false;
    samples_ = {};
    ++averagings_;
  }

  std::string coverage() const {
    const auto all_of = [](const FlatBuffer& buffer) {
      const auto n = std::to_string(buffer.slots().size());
      return n + "/" + n;
    };
    std::string text = "averaged " + std::to_string(parameters_.gradients.slots().size()) + "/" +
                       std::to_string(parameters_.values.slots().size()) + " parameters" +
                       mean_.note();
    if (options_.running != nullptr)
      text += ", " + all_of(*options_.running) + " running statistics";
    if (!options_.states.empty()) text += ", the optimizer's " + options_.states_text + ",";
    text += ' ';
    text += std::to_string(averagings_) + " times in " + std::to_string(updates_) + " steps";
    return outer_ ? text + ", with " + std::to_string(outer_->steps()) + " outer steps" : text;
  }

  ParameterBuffer& parameters_;
  const ParameterAveragingOptions options_;
  const int world_size_;
  ReplicaMean mean_;
  std::vector<FlatBuffer*> included_;  // what the current averaging includes
  std::optional<OuterStep> outer_;
  std::int64_t updates_ = 0, averagings_ = 0;
  bool apart_ = false;  // there were updates since the last averaging
  // The inner rate for the outer step of an averaging that has not ended; none: there is none.
  std::optional<double> missed_rate_;
  SampleCount samples_;
};

}  // namespace

std::unique_ptr<AveragingPolicy> make_parameter_averaging(
    backends::Communicator& communicator, ParameterBuffer& parameters, KernelContext& context,
    const ParameterAveragingOptions& options) {
  return std::make_unique<ParameterAveraging>(communicator, parameters, context, options);
}

}  // namespace engine
