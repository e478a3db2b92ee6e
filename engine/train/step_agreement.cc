// Makes one small all-gather between steps, and decides from its sums.
#include "engine/train/step_agreement.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "engine/averaging/sums/ordered_tree.h"

namespace engine {
namespace {

// The seconds between two exchanges, and hence until all ranks notice an orderly stop. Over a slow
// link they take at most this fraction of the time.
constexpr double kMinInterval = 0.25, kMaxInterval = 2;
constexpr double kMaxFraction = 0.05;
constexpr std::int64_t kMaxStepsBetweenExchanges = 1000;

// The struct has no padding: its bytes are sent as they are.
static_assert(std::is_trivially_copyable_v<StepSums> &&
              sizeof(StepSums) == 10 * sizeof(double) + 4 * sizeof(std::int64_t));

}  // namespace

StepSums& StepSums::operator+=(const StepSums& other) {
  loss_sum += other.loss_sum;
  rows += other.rows;
  correct += other.correct;
  epoch_rows += other.epoch_rows;
  not_finite.loss += other.not_finite.loss;
  not_finite.norm += other.not_finite.norm;
  overdue_reports += other.overdue_reports;
  work += other.work;
  step_seconds += other.step_seconds;
  exchange_seconds = std::max(exchange_seconds, other.exchange_seconds);
  stop_signal = std::max(stop_signal, other.stop_signal);
  pausing += other.pausing;
  leaving += other.leaving;
  return *this;
}

StepAgreement::StepAgreement(LoopContext& context)
    : context_(context),
      gathered_(static_cast<std::size_t>(context.parts.control.world_size())),
      work_(gathered_.size()) {}

void StepAgreement::begin() {
  last_ = context_.progress().global_step;
  last_seconds_ = context_.clock.seconds();
  next_ = last_ + 1;
}

double StepAgreement::interval(double exchange_seconds) {
  return std::clamp(exchange_seconds / kMaxFraction, kMinInterval, kMaxInterval);
}

void StepAgreement::sum_over_ranks(StepSums& sums) {
  if (gathered_.size() == 1) return;
  context_.parts.control.all_gather(&sums, sizeof sums, gathered_.data());
  std::ranges::transform(gathered_, work_.begin(), &StepSums::work);
  reduce_tree(gathered_.size(),
              [&](std::size_t into, std::size_t from) { gathered_[into] += gathered_[from]; });
  sums = gathered_.front();
}

StepSums StepAgreement::exchange(StepSums own, double now) {
  const TrainerParts& parts = context_.parts;
  const std::int64_t step = context_.progress().global_step;
  // Ranks do not leave in the first exchange: ranks that have just joined may not have the state
  // yet, and need this rank for it.
  const bool leave = std::exchange(has_exchanged_, true) && parts.leave && parts.leave();
  own.step_seconds =
      (now - last_seconds_) / static_cast<double>(std::max<std::int64_t>(1, step - last_));
  own.exchange_seconds = exchange_seconds_;
  own.stop_signal = context_.stop_signal.load();
  own.pausing = parts.pause && parts.pause() ? 1 : 0;
  own.leaving = leave ? 1 : 0;
  const double begin = context_.clock.seconds();
  sum_over_ranks(own);
  exchange_seconds_ = context_.clock.seconds() - begin;
  decide(own, leave);
  const double mean_step = std::max(own.step_seconds / parts.control.world_size(), 1e-6);
  next_ = step + std::clamp<std::int64_t>(
                     static_cast<std::int64_t>(interval(own.exchange_seconds) / mean_step), 1,
                     kMaxStepsBetweenExchanges);
  last_ = step;
  last_seconds_ = now;
  return own;
}

void StepAgreement::decide(const StepSums& sums, bool leave) {
  const TrainerOptions& options = context_.options;
  const bool may_leave = context_.parts.control.world_size() - sums.leaving >= options.min_ranks;
  stop_ = static_cast<int>(sums.stop_signal);
  pause_ = sums.pausing > 0 || (sums.leaving > 0 && may_leave);
  leaves_ = leave && may_leave;
  if (sums.leaving > 0 && !may_leave && stop_ == 0) stop_ = options.leave_signal;
}

}  // namespace engine
