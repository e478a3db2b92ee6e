// LoneSaver: chooses between this rank's own state and the last copy.
#include "engine/train/lone_saver.h"

#include <algorithm>
#include <vector>

#include "engine/train/checks/finite_guard.h"
#include "io/base/time/deadline.h"
#include "io/base/time/trace.h"

namespace engine {

// The state of a device is lost with a rank that was in a sum of the device, so there the copy
// replaces the state of the last step. It costs the transfer of the whole state. Copies take at
// most these fractions of the time. Policies whose schedule leaves replicas different may have an
// exchange in progress, which reading their state awaits or ends, until all ranks synchronize at
// the end of an epoch.
void LoneSaver::keep_state(bool epoch_end, bool evaluation_follows) {
  constexpr double kMaxFraction = 0.02, kMaxFractionOnDevice = 0.01;
  if (!context_.may_keep_state() || context_.options.supports_rollback) return;
  TrainState& state = context_.parts.state;
  const bool on_device = state.control != nullptr;
  const LoneState lone = state.policy.coupling().lone;
  const bool needed = lone == LoneState::kLastMean || on_device;
  const bool is_resumable = lone == LoneState::kIndependent ||
                            (state.policy.is_in_sync() && (lone != LoneState::kOwn || epoch_end));
  if (!needed || !is_resumable || !budget_.allows(base::steady_seconds())) return;
  // A device is still computing the step, which is no cost of the copy.
  if (on_device) static_cast<void>(context_.parts.work.results());
  const double start = base::steady_seconds();
  const base::TraceSpan span("copy the state");
  const PendingEvaluation before = state.pending_evaluation;
  if (evaluation_follows) state.pending_evaluation = PendingEvaluation::kAll;
  {
    const HostView view(state.home, Access::kRead);
    if (!first_not_finite(state.model, true)) context_.parts.checkpoints->keep(state);
  }
  state.pending_evaluation = before;
  budget_.add(start, base::steady_seconds(), on_device ? kMaxFractionOnDevice : kMaxFraction);
}

// Rank 0 may have saved its own state, if states differ by rank.
std::optional<TrainProgress> LoneSaver::save_own_state() {
  TrainState& state = context_.parts.state;
  CheckpointManager& checkpoints = *context_.parts.checkpoints;
  const LoneState lone = state.policy.coupling().lone;
  const bool is_common = state.policy.is_in_sync();
  const bool is_independent = lone == LoneState::kIndependent;
  LoneSave mode{.keep_all = is_independent};
  if (is_independent || (lone == LoneState::kOwn && !is_common))
    mode.last_common = context_.done.saved;
  const bool resumable = is_common || is_independent || lone == LoneState::kOwn;
  if (!context_.can_save_alone() || !recovery_.is_complete() || !resumable ||
      first_not_finite(state.model, true))
    return checkpoints.save_kept(mode);
  const BestModel* const best = context_.parts.best;
  mode.best = best != nullptr && best->is_best(state.progress.global_step);
  if (!checkpoints.save_alone(state, mode)) return std::nullopt;
  return state.progress;
}

std::string LoneSaver::save_alone() {
  if (!context_.may_keep_state() || context_.parts.control.rank() != 0) return "";
  return save_own_state() ? lost_with_others() : "";
}

void LoneSaver::save_after_loss() noexcept {
  if (!context_.may_keep_state()) return;
  try {
    if (context_.progress().global_step == 0) return;
    const std::optional<TrainProgress> saved = save_own_state();
    if (saved) report_saved_step("a rank was lost", *saved);
    context_.report_saved();
  } catch (const std::exception& error) {
    report_failure(error);
  }
}

// The ranks that remain save if this is another rank than 0, and continue if they are elastic.
void LoneSaver::save_after_data_error() noexcept {
  if (context_.parts.control.rank() != 0 || !context_.may_keep_state() ||
      context_.options.supports_rollback || !has_unsaved_step())
    return;
  try {
    const std::optional<TrainProgress> saved = save_own_state();
    context_.report_saved();
    if (saved) report_saved_step("the next step failed", *saved);
  } catch (const std::exception& error) {
    report_failure(error);
  }
}

bool LoneSaver::has_unsaved_step() const {
  const std::int64_t step = context_.progress().global_step;
  return step > 0 && context_.done.saved != step && recovery_.is_complete();
}

void LoneSaver::report_failure(const std::exception& error) const {
  context_.parts.checkpoints->notify("the last step could not be saved: " +
                                     std::string(error.what()));
}

void LoneSaver::report_saved_step(const std::string& cause, const TrainProgress& saved) const {
  const AveragingPolicy& policy = context_.parts.state.policy;
  const bool is_independent = policy.coupling().lone == LoneState::kIndependent;
  const std::int64_t later = context_.progress().global_step - saved.global_step;
  const std::string replica = "replica of rank " + std::to_string(context_.parts.control.rank());
  std::string text =
      cause + ": saved " + context_.parts.checkpoints->path_of(saved.global_step) + ", the ";
  if (later > 0)
    text += (is_independent ? "last copied " + replica
                            : std::string("last copied state that all ranks had")) +
            "; --resume repeats the " + std::to_string(later) +
            (later == 1 ? " step since" : " steps since");
  else
    text += policy.is_in_sync() ? "last completed step" : replica;
  const std::string lost = lost_with_others();
  context_.parts.checkpoints->notify(lost.empty() ? text : text + "; " + lost);
}

std::string LoneSaver::lost_with_others() const {
  AveragingPolicy& policy = context_.parts.state.policy;
  const LoneState lone = policy.coupling().lone;
  if (lone == LoneState::kIndependent)
    return "the other ranks' own models are not in it (--sync none): all ranks resume from it";
  std::string text;
  if (lone == LoneState::kOwn && !policy.is_in_sync())
    text = "the other ranks' work since their last averaging is not in it";
  const std::vector<PolicyState> states = policy.state();
  if (std::ranges::any_of(states,
                          [](const PolicyState& s) { return s.local && s.buffer->bytes() > 0; })) {
    if (!text.empty()) text += ", and ";
    text += "what --compress had not sent yet on the other ranks is dropped";
  }
  return text;
}

}  // namespace engine
