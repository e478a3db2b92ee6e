// Computes rates, and gathers the phases of all ranks.
#include "engine/train/step_reports.h"

#include <algorithm>

#include "engine/train/replicas/averaging_counts.h"

namespace engine {
namespace {

// The reports of a run without TrainerOptions::log_every: enough for a curve, and frequent enough
// for the reader of a long run.
constexpr std::int64_t kMinReports = 100;
constexpr double kReportSeconds = 10;

}  // namespace

StepReports::StepReports(LoopContext& context)
    : context_(context),
      rank_phases_(static_cast<std::size_t>(context.parts.control.world_size())),
      own_seconds_(rank_phases_.size()) {}

void StepReports::begin() {
  last_seconds_ = context_.clock.seconds();
  last_samples_ = context_.progress().samples_seen;
  last_step_ = context_.progress().global_step;
  if (are_wanted())
    static_cast<void>(
        context_.parts.state.policy.take_report());  // enables the measurement of the spread
}

bool StepReports::are_wanted() const {
  return context_.options.log_every != std::optional<std::int64_t>(0);
}

bool StepReports::is_due() const {
  const std::optional<std::int64_t>& every = context_.options.log_every;
  const std::int64_t step = context_.progress().global_step;
  if (every) return follow_step(step);
  const std::int64_t between =
      std::max<std::int64_t>(1, context_.options.total_steps / kMinReports);
  if (context_.is_last_step()) return true;
  if (!context_.ranks_run_apart()) return step % between == 0;
  // A report waits for all ranks, so it follows an averaging.
  return step / between > last_step_ / between && context_.parts.state.policy.is_in_sync();
}

bool StepReports::follow_step(std::int64_t step) const {
  const std::optional<std::int64_t>& every = context_.options.log_every;
  return every && *every > 0 && step % *every == 0;
}

bool StepReports::is_overdue(double now) const {
  return !context_.options.log_every && now - last_seconds_ >= kReportSeconds;
}

void StepReports::add_ranks(StepReport& report) {
  const StepPhases own =
      phases_.over(static_cast<double>(report.progress.global_step - last_step_));
  rank_phases_.front() = own;
  backends::Communicator& control = context_.parts.control;
  if (control.world_size() > 1) control.all_gather(&own, sizeof own, rank_phases_.data());
  report.ranks = rank_phases_;
  for (const StepPhases& rank : rank_phases_) report.phases += rank;
  report.phases = report.phases.over(static_cast<double>(rank_phases_.size()));
}

void StepReports::add_slowest(StepReport& report) {
  for (std::size_t r = 0; r < rank_phases_.size(); ++r) {
    own_seconds_[r] = rank_phases_[r].own();
    if (own_seconds_[r] > own_seconds_[static_cast<std::size_t>(report.slowest_rank)])
      report.slowest_rank = static_cast<int>(r);
  }
  const std::size_t others = own_seconds_.size() - 1;
  if (others == 0) return;
  std::sort(own_seconds_.begin(), own_seconds_.end());
  const double median = (own_seconds_[(others - 1) / 2] + own_seconds_[others / 2]) / 2;
  report.slowest_ratio = own_seconds_.back() / std::max(median, 1e-12);
}

void StepReports::report(StepReport report, double now) {
  add_ranks(report);
  add_slowest(report);
  const double seconds = now - last_seconds_;
  report.samples_per_s =
      static_cast<double>(report.progress.samples_seen - last_samples_) / std::max(seconds, 1e-9);
  report.step_seconds = seconds / static_cast<double>(report.progress.global_step - last_step_);
  const AveragingReport averaged = take_report_of_run(context_.parts.state.policy);
  report.averagings = averaged.averagings;
  report.bytes_sent = averaged.bytes_sent;
  report.spread = averaged.spread;
  last_seconds_ = now;
  last_samples_ = report.progress.samples_seen;
  last_step_ = report.progress.global_step;
  ++reports_;
  phases_ = {};
  context_.observers.on_report(report);
}

}  // namespace engine
