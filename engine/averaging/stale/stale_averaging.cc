// Decides after each step whether this rank is late, and from which step it continues.
#include "engine/averaging/stale/stale_averaging.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/averaging/stale/stale_mean.h"
#include "engine/averaging/stale/stale_rounds.h"

namespace engine {
namespace {

class StaleAveraging final : public AveragingPolicy {
 public:
  StaleAveraging(backends::Communicator& communicator, ParameterBuffer& parameters,
                 const StaleAveragingOptions& options)
      : options_(options),
        skipped_before_(static_cast<std::size_t>(communicator.world_size())),
        mean_(communicator, parameters, options.schedule, options.outer),
        rounds_(std::make_unique<StaleRounds>(communicator, options.stale, mean_)) {}

  std::string_view name() const override { return options_.name; }
  double loss_scale(const StepWeights& weights) const override {
    return factor_of_mean(weights.local);
  }
  GradientExchange* begin_step(StateHome& home) override {
    if (rounds_->is_running()) return nullptr;
    const StateUse use(home, true);
    mean_.fetch_values(use.math());
    mean_.start();
    rounds_->start();
    return nullptr;
  }
  std::int64_t end_step(const StepCounts& counts, double /*lr*/, StateHome& home) override {
    ++updates_;
    apart_ = true;
    samples_ += counts.local;
    const StaleRounds::Standing others = rounds_->standing();
    if (others.behind > 0) leave_late(home);
    const std::int64_t step = std::max(updates_, others.target);
    if (counts.all_meet) rounds_->call_to(step);
    if (step > others.closed_at && options_.schedule.due(step)) {
      if (!join({.step = step, .samples = samples_, .waits_for_all = counts.all_meet}, home))
        leave_late(home);
    }
    const std::int64_t skipped = step - updates_;
    rounds_->add_skipped(skipped);
    updates_ = step;
    return skipped;
  }
  Coupling coupling() const override {
    return {.steps_alone = true, .stays_apart = true, .lone = LoneState::kOwn};
  }
  void synchronize(StateHome& home) override {
    if (!rounds_->is_running()) return;
    if (rounds_->standing().behind > 0) leave_late(home);
    join({.kind = apart_ ? StaleRound::Kind::kDrain : StaleRound::Kind::kPause,
          .step = updates_,
          .samples = samples_},
         home);
  }
  RankDifferences differences() const override { return {.optimizer_states = true}; }
  bool is_in_sync() const override { return !apart_; }
  std::int64_t samples_since_sync() const override {
    return apart_ ? std::max<std::int64_t>(1, samples_) : 0;
  }

  // Saving synchronizes first. If the group has failed, the changes that are kept are lost.
  PolicyCounters counters() const override {
    rounds_->cancel();
    PolicyCounters counters{{"updates", updates_}};
    rounds_->read([&](const StaleRounds::Totals& here) {
      mean_.add_counters(counters);
      counters.emplace_back("missed_averagings", missed_before_ + here.missed);
      for (std::size_t r = 0; r < here.skipped.size(); ++r)
        counters.emplace_back(skipped_by(r), skipped_before_[r] + here.skipped[r]);
    });
    return counters;
  }
  void restore_counters(const PolicyCounters& counters) override {
    updates_ = find_counter(counters, "updates", 0);
    missed_before_ = find_counter(counters, "missed_averagings", 0);
    for (std::size_t r = 0; r < skipped_before_.size(); ++r)
      skipped_before_[r] = find_counter(counters, skipped_by(r), 0);
    mean_.restore_counters(counters);
  }
  std::vector<PolicyState> state() override { return mean_.state(); }
  AveragingReport take_report() override {
    AveragingReport report;
    rounds_->read([&](const StaleRounds::Totals& here) {
      report.averagings = mean_.averagings();
      report.bytes_sent = mean_.bytes_sent();
      report.coverage = mean_.text(updates_) + late_text(here);
    });
    return report;
  }

 private:
  static std::string skipped_by(std::size_t rank) {
    return "skipped_steps." + std::to_string(rank);
  }
  // Returns false if the round was closed without this rank.
  bool join(const StaleRounds::Arrival& arrival, StateHome& home) {
    const StateUse use(home, true);
    mean_.fetch_values(use.math());
    const StaleRounds::Outcome outcome = rounds_->join(arrival);
    if (outcome == StaleRounds::Outcome::kMissed) return false;
    mean_.take_result();
    mean_.store_values(use.math());
    samples_ = 0;
    if (outcome == StaleRounds::Outcome::kFull) apart_ = false;
    return true;
  }
  void leave_late(StateHome& home) {
    const StateUse use(home, true);
    mean_.fetch_values(use.math());
    rounds_->leave_late([this] { mean_.keep_change(samples_); });
    mean_.store_values(use.math());
    samples_ = 0;
  }
  std::string late_text(const StaleRounds::Totals& here) const {
    std::int64_t skipped = 0;
    for (std::size_t r = 0; r < here.skipped.size(); ++r)
      skipped += skipped_before_[r] + here.skipped[r];
    return "; late ranks missed " + std::to_string(missed_before_ + here.missed) +
           " averagings and skipped " + std::to_string(skipped) + " steps";
  }

  const StaleAveragingOptions options_;
  std::int64_t updates_ = 0;
  std::int64_t samples_ = 0;                  // of this rank since its last result
  bool apart_ = false;                        // there were updates since all ranks averaged
  std::int64_t missed_before_ = 0;            // in earlier starts
  std::vector<std::int64_t> skipped_before_;  // by rank, in earlier starts
  StaleMean mean_;
  std::unique_ptr<StaleRounds> rounds_;  // declared last: its thread uses the mean
};

}  // namespace

std::unique_ptr<AveragingPolicy> make_stale_averaging(backends::Communicator& communicator,
                                                      ParameterBuffer& parameters,
                                                      const StaleAveragingOptions& options) {
  return std::make_unique<StaleAveraging>(communicator, parameters, options);
}

}  // namespace engine
