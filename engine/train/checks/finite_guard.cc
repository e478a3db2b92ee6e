// Implements FiniteGuard.
#include "engine/train/checks/finite_guard.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "io/base/numbers/finite.h"

namespace engine {
namespace {

// A scaler that skips this many consecutive steps has not found a scale: the values are bad.
constexpr std::int32_t kMaxSkippedByScaling = 100;

bool is_finite(const FlatBuffer& buffer) {
  return base::first_not_finite(buffer.dtype(), buffer.data(),
                                static_cast<std::size_t>(buffer.size())) < 0;
}

bool is_finite(const TensorView& view) {
  return base::first_not_finite(view.dtype, view.data,
                                static_cast<std::size_t>(view.shape.count())) < 0;
}

}  // namespace

std::optional<std::size_t> first_not_finite(const ModelState& state, bool statistics) {
  using Kind = ModelState::Kind;
  const bool good_values = is_finite(state.parameters.values),
             good_running = !statistics || is_finite(state.running);
  if (good_values && good_running) return std::nullopt;
  for (std::size_t i = 0; i < state.entries.size(); ++i) {
    const ModelState::Entry& entry = state.entries[i];
    const bool looked_at = entry.kind == Kind::kParameter || (entry.is_statistic() && statistics);
    if (looked_at && !is_finite(state.view(entry))) return i;
  }
  return std::nullopt;
}

FiniteGuard::FiniteGuard(backends::Communicator& communicator, TrainState& state,
                         OnNonFinite action, bool norms)
    : communicator_(communicator),
      state_(state),
      action_(action),
      gathered_(static_cast<std::size_t>(communicator.world_size())),
      restores_(action == OnNonFinite::kSkip && state.control == nullptr) {
  if (action == OnNonFinite::kSkip || norms)
    may_update_ = [this](double norm, double loss_sum) { return vote(norm, loss_sum); };
}

void FiniteGuard::begin_step() {
  skipped_ = false;
  if (!skipped_before_ && state_.control != nullptr)
    skipped_before_ = state_.control->skipped_steps;
  if (!restores_) return;
  const HostView view(state_.home, Access::kRead);
  before_step_.clear();
  before_step_.keep(state_.model.running);
  before_step_.keep(state_.model.counters);
}

void FiniteGuard::end_step() {
  if (!skipped_ || !restores_) return;
  const HostView view(state_.home, Access::kWrite);
  before_step_.put_back();
}

std::optional<std::int64_t> FiniteGuard::skipped_steps() const {
  if (action_ != OnNonFinite::kSkip) return std::nullopt;
  return skipped_steps_;
}

bool FiniteGuard::vote(double norm, double loss_sum) {
  norm_ = norm;
  if (action_ != OnNonFinite::kSkip) {
    bad_norm_ = bad_norm_ || !std::isfinite(norm);
    return true;
  }
  std::int64_t bad = std::isfinite(norm) && std::isfinite(loss_sum) ? 0 : 1;
  if (communicator_.world_size() > 1)
    communicator_.all_reduce(&bad, 1, DType::kI64, backends::ReduceOp::kMax);
  skipped_ = bad != 0;
  skipped_steps_ += bad;
  return !skipped_;
}

FiniteGuard::Signs FiniteGuard::signs(const StepResults& results) {
  if (action_ == OnNonFinite::kSkip && state_.control != nullptr)
    skipped_steps_ = results.skipped_steps - skipped_before_.value_or(0);
  if (action_ == OnNonFinite::kSkip || reported_) return {};
  // The sum of all losses so far includes the steps since the last exchange. A step skipped by loss
  // scaling leaves a non-finite sum.
  const bool good = std::isfinite(results.last.loss_sum) &&
                    (state_.loss_scale.on() || std::isfinite(results.total.loss_sum));
  return {.loss = good ? 0.0 : 1.0, .norm = bad_norm_ ? 1.0 : 0.0};
}

bool FiniteGuard::skipped_by_scaling() const {
  if (!state_.loss_scale.on() || state_.control == nullptr) return false;
  const HostView view(state_.home, Access::kRead);
  const std::int32_t in_a_row = state_.control->skipped_in_a_row;
  return in_a_row > 0 && in_a_row < kMaxSkippedByScaling;
}

std::string FiniteGuard::find_non_finite(const Signs& sums) {
  if (sums.loss > 0) {
    std::int64_t excused = skipped_by_scaling() ? 1 : 0;
    if (state_.loss_scale.on() && communicator_.world_size() > 1)
      communicator_.all_reduce(&excused, 1, DType::kI64, backends::ReduceOp::kMin);
    return excused == 0 ? "loss" : "";
  }
  if (sums.norm > 0) return "gradient norm";
  if (action_ != OnNonFinite::kSkip && !reported_) last_good_ = state_.progress.global_step;
  return "";
}

std::string FiniteGuard::bad_parameter() {
  if (scanned_step_ == state_.progress.global_step) return scanned_;
  if (!first_step_) first_step_ = state_.progress.global_step;
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  {
    const HostView view(state_.home, Access::kRead);
    const auto found = first_not_finite(state_.model, /*statistics=*/false);
    const std::int64_t own = found ? static_cast<std::int64_t>(*found) : kNone;
    gathered_.front() = own;
    if (communicator_.world_size() > 1)
      communicator_.all_gather(&own, sizeof own, gathered_.data());
  }
  const std::int64_t first = *std::min_element(gathered_.begin(), gathered_.end());
  scanned_step_ = state_.progress.global_step;
  scanned_ = first == kNone
                 ? ""
                 : "parameter '" + state_.model.entries[static_cast<std::size_t>(first)].name + "'";
  return scanned_;
}

std::optional<NonFiniteReport> FiniteGuard::note(const std::string& what) {
  if (what.empty() || std::exchange(reported_, true)) return std::nullopt;
  const std::int64_t step = state_.progress.global_step;
  const bool none_was = !last_good_ && action_ != OnNonFinite::kSkip;
  return NonFiniteReport{action_, step, last_good_, what, none_was || step == first_step_};
}

// With kSkip a parameter that is not finite later must still end the run.
std::optional<NonFiniteReport> FiniteGuard::note_evaluation() {
  if (reported_ || std::exchange(evaluation_reported_, true)) return std::nullopt;
  if (action_ != OnNonFinite::kSkip) reported_ = true;
  const std::int64_t step = state_.progress.global_step;
  return NonFiniteReport{.action = action_,
                         .step = step,
                         .last_good = last_good_,
                         .what = "test loss",
                         .at_start = step == first_step_,
                         .of_evaluation = true};
}

}  // namespace engine
