// Implements evaluations and checkpoints, and tracks those that are pending.
#include "engine/train/milestones.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backends/backend_error.h"
#include "engine/core/cuda.h"
#include "io/base/time/deadline.h"
#include "io/base/time/trace.h"

namespace engine {

void Milestones::begin() {
  const std::int64_t step = context_.progress().global_step;
  // A resumed state is already on disk; the state before the first step is not evaluated.
  done_ = {.evaluated = step, .saved = step > 0 ? step : -1};
  if (context_.parts.done) done_ = *context_.parts.done;
}

bool Milestones::is_due(const Every& every, const TrainProgress& at, bool epoch_end) {
  if (every.count <= 0) return false;
  if (every.epochs) return epoch_end && at.epoch % every.count == 0;
  return at.global_step % every.count == 0;
}

bool Milestones::follow_next_step() const {
  const TrainerParts& parts = context_.parts;
  const TrainerOptions& options = context_.options;
  TrainProgress next = context_.progress();
  ++next.global_step;
  if (next.step_in_epoch + 1 == parts.sampler.steps_per_epoch() ||
      next.global_step == options.total_steps)
    return true;
  return (parts.evaluator != nullptr && is_due(options.evaluate, next, false)) ||
         (parts.checkpoints != nullptr && is_due(options.save, next, false));
}

bool Milestones::should_stop_early() const {
  return context_.parts.best != nullptr && context_.parts.best->should_stop_early();
}

bool Milestones::has_average() const {
  return context_.parts.average != nullptr && context_.parts.average->ready();
}

void Milestones::catch_up() {
  const TrainerParts& parts = context_.parts;
  const TrainerOptions& options = context_.options;
  TrainState& state = parts.state;
  const std::int64_t step = state.progress.global_step;
  if (step == 0) return;
  const bool epoch_end = state.progress.step_in_epoch == 0, carried_over = parts.done.has_value();
  if (carried_over && is_due(options.evaluate, epoch_end) && done_.evaluated != step)
    state.pending_evaluation = PendingEvaluation::kAll;
  const PendingEvaluation left = state.pending_evaluation;
  if (left == PendingEvaluation::kAll && parts.evaluator != nullptr)
    evaluate();
  else if (left == PendingEvaluation::kAverage && parts.evaluator != nullptr && has_average())
    evaluate_average();
  else
    state.pending_evaluation = PendingEvaluation::kNone;
  // The checkpoint states that the evaluation is pending: the next resumption would repeat it.
  const bool is_made_up = left != PendingEvaluation::kNone &&
                          state.pending_evaluation == PendingEvaluation::kNone && !carried_over;
  const bool save_due = carried_over && is_due(options.save, epoch_end) && done_.saved != step;
  if (best_unsaved_ || save_due || is_made_up) save();
}

bool Milestones::average_weights() {
  WeightAverage* const average = context_.parts.average;
  const TrainProgress& progress = context_.progress();
  const bool last = context_.is_last_step();
  if (average == nullptr || (progress.step_in_epoch != 0 && !last)) return false;
  context_.set_activity("averaging the weights of epochs");
  const base::TraceSpan span("average the weights of epochs");
  const TrainClock::Exclusion exclusion(context_.clock);
  const bool before = average->ready();
  recovery_.mark_unknown();
  average->end_epoch(context_.parts.state.home, progress, last);
  recovery_.mark_complete();
  return !before && average->ready();
}

void Milestones::after_step(bool epoch_end, bool must_evaluate) {
  if (must_evaluate || is_due(context_.options.evaluate, epoch_end)) evaluate();
  if (best_unsaved_ || is_due(context_.options.save, epoch_end)) save();
}

void Milestones::finish() {
  const std::int64_t step = context_.progress().global_step;
  // Skip the evaluation after a stop signal: little time is left.
  if (agreement_.stop_signal() == 0 && done_.evaluated != step) evaluate();
  if (best_unsaved_ || done_.saved != step) save();
  if (context_.parts.checkpoints != nullptr) context_.parts.checkpoints->finish();
}

void Milestones::evaluate() {
  const TrainerParts& parts = context_.parts;
  if (parts.evaluator == nullptr) return;
  // A checkpoint contains this if a stop aborts the evaluation.
  parts.state.pending_evaluation = PendingEvaluation::kAll;
  const base::TraceSpan span("evaluation");
  recovery_.check_parameters();
  context_.set_activity("evaluation");
  const TrainClock::Exclusion exclusion(context_.clock);
  BestModel* const best = parts.best;
  // If the best model is kept, the evaluated state is the one in a checkpoint.
  const bool keeps = best != nullptr && best->keeps() && parts.state.progress.step_in_epoch != 0;
  const AveragingPolicy& policy = parts.state.policy;
  if (keeps || (policy.coupling().stays_apart && !policy.is_in_sync()))
    synchronize(parts.control, parts.state);
  std::optional<EvalReport> report = evaluate_weights();
  if (!report) return end_evaluation();
  done_.evaluated = report->progress.global_step;
  if (best != nullptr && best->update(*report)) best_unsaved_ = parts.checkpoints != nullptr;
  parts.state.pending_evaluation = PendingEvaluation::kNone;
  context_.observers.on_eval(*report);
  if (has_average()) evaluate_average();
}

std::optional<EvalReport> Milestones::evaluate_weights() {
  const TrainerParts& parts = context_.parts;
  const HostView view(parts.state.home, Access::kRead);
  int stop = agreement_.stop_signal();
  std::optional<EvalReport> report;
  try {
    report = parts.evaluator->run_unless(context_.stop_signal, stop);
  } catch (const backends::Error&) {
    throw;  // the other ranks are gone
  } catch (const cuda::CudaError&) {
    throw;  // the state may be on this device
  } catch (const std::exception&) {
    evaluation_error_ = std::current_exception();
    return report;
  }
  agreement_.stop(stop);
  if (!report) return report;
  report->progress = parts.state.progress;
  recovery_.check_evaluation(*report);
  return report;
}

// An evaluation changes nothing, so the steps since the last checkpoint would be lost without need.
// All ranks are here. Elastic ranks that remain continue without the one that failed.
void Milestones::end_evaluation() {
  const std::exception_ptr error = std::exchange(evaluation_error_, nullptr);
  if (!error) return;
  const backends::Communicator& control = context_.parts.control;
  const std::int64_t step = context_.progress().global_step;
  const bool others_continue = context_.options.supports_rollback && control.world_size() > 1;
  if (context_.parts.checkpoints == nullptr || others_continue || done_.saved == step)
    std::rethrow_exception(error);
  CheckpointManager& checkpoints = *context_.parts.checkpoints;
  try {
    save();
    checkpoints.finish();
    context_.report_saved();
    if (control.rank() == 0)
      checkpoints.notify("the evaluation failed: saved " + checkpoints.path_of(step) +
                         ", the last completed step; --resume repeats the evaluation");
  } catch (const backends::PeerError&) {
    save_after_loss();
  } catch (const std::exception& failure) {
    checkpoints.notify("the last step could not be saved: " + std::string(failure.what()));
  }
  std::rethrow_exception(error);
}

void Milestones::evaluate_average() {
  const TrainerParts& parts = context_.parts;
  parts.state.pending_evaluation = PendingEvaluation::kAverage;
  std::optional<EvalReport> report;
  {
    const HostView view(parts.state.home, Access::kRead);  // the weights are restored
    const AverageInPlace average(*parts.average);
    report = evaluate_weights();
  }
  if (!report) return end_evaluation();
  report->weights = parts.average->name();
  parts.state.pending_evaluation = PendingEvaluation::kNone;
  context_.observers.on_eval(*report);
}

void Milestones::save() {
  const TrainerParts& parts = context_.parts;
  if (parts.checkpoints == nullptr) return;
  const base::TraceSpan span("save");
  const TrainClock::Exclusion exclusion(context_.clock);
  const bool is_finite = recovery_.check_parameters();
  context_.set_activity("saving a checkpoint");
  // Synchronizes the replicas first. A non-finite state replaces no other checkpoint.
  parts.checkpoints->save(parts.state, {.best = std::exchange(best_unsaved_, false) && is_finite,
                                        .keep_all = !is_finite});
  done_.saved = parts.state.progress.global_step;
  context_.report_saved();
}

// The state of a device is lost with a rank that was in a sum of the device, so there the copy
// replaces the state of the last step. It costs the transfer of the whole state. Copies take at
// most these fractions of the time. Policies whose schedule leaves replicas different may have an
// exchange in progress, which reading their state awaits or ends, until all ranks synchronize at
// the end of an epoch.
void Milestones::keep_state(bool epoch_end, bool must_evaluate) {
  constexpr double kMaxFraction = 0.02, kMaxFractionOnDevice = 0.01;
  if (!context_.may_keep_state() || context_.options.supports_rollback) return;
  TrainState& state = context_.parts.state;
  const bool on_device = state.control != nullptr;
  const LoneState lone = state.policy.coupling().lone;
  const bool needed = lone == LoneState::kLastMean || on_device;
  const bool is_resumable = lone == LoneState::kIndependent ||
                            (state.policy.is_in_sync() && (lone != LoneState::kOwn || epoch_end));
  const double start = base::steady_seconds();
  if (!needed || !is_resumable || start < next_copy_) return;
  const base::TraceSpan span("copy the state");
  const PendingEvaluation before = state.pending_evaluation;
  if (context_.parts.evaluator != nullptr &&
      (must_evaluate || is_due(context_.options.evaluate, epoch_end)))
    state.pending_evaluation = PendingEvaluation::kAll;
  {
    const HostView view(state.home, Access::kRead);
    if (!first_not_finite(state.model, true)) context_.parts.checkpoints->keep(state);
  }
  state.pending_evaluation = before;
  const double end = base::steady_seconds();
  next_copy_ = end + (end - start) / (on_device ? kMaxFractionOnDevice : kMaxFraction);
}

// Rank 0 may have saved its own state, if states differ by rank.
std::optional<TrainProgress> Milestones::save_own_state() {
  TrainState& state = context_.parts.state;
  CheckpointManager& checkpoints = *context_.parts.checkpoints;
  const LoneState lone = state.policy.coupling().lone;
  const bool is_common = state.policy.is_in_sync();
  const bool is_independent = lone == LoneState::kIndependent;
  LoneSave mode{.keep_all = is_independent};
  if (is_independent || (lone == LoneState::kOwn && !is_common)) mode.last_common = done_.saved;
  const bool resumable = is_common || is_independent || lone == LoneState::kOwn;
  if (!context_.can_save_alone() || !recovery_.is_complete() || !resumable ||
      first_not_finite(state.model, true))
    return checkpoints.save_kept(mode);
  if (!checkpoints.save_alone(state, mode)) return std::nullopt;
  return state.progress;
}

std::string Milestones::save_alone() {
  if (!context_.may_keep_state() || context_.parts.control.rank() != 0) return "";
  return save_own_state() ? lost_with_others() : "";
}

void Milestones::save_after_loss() noexcept {
  if (!context_.may_keep_state()) return;
  try {
    if (context_.progress().global_step == 0) return;
    const std::optional<TrainProgress> saved = save_own_state();
    if (saved) report_saved_step("a rank was lost", *saved);
    context_.report_saved();
  } catch (const std::exception& error) {
    context_.parts.checkpoints->notify("the last step could not be saved: " +
                                       std::string(error.what()));
  }
}

// The ranks that remain save if this is another rank than 0, and continue if they are elastic.
void Milestones::save_after_data_error() noexcept {
  const bool alone = context_.parts.control.world_size() == 1;
  const std::int64_t step = context_.progress().global_step;
  if (context_.parts.checkpoints == nullptr || step == 0 || done_.saved == step ||
      !recovery_.is_complete())
    return;
  if (!alone && (context_.parts.control.rank() != 0 || !context_.may_keep_state() ||
                 context_.options.supports_rollback))
    return;
  CheckpointManager& checkpoints = *context_.parts.checkpoints;
  try {
    std::optional<TrainProgress> saved = context_.progress();
    if (alone) {
      save();
      checkpoints.finish();
    } else {
      saved = save_own_state();
    }
    context_.report_saved();
    if (saved) report_saved_step("the next step failed", *saved);
  } catch (const std::exception& error) {
    checkpoints.notify("the last step could not be saved: " + std::string(error.what()));
  }
}

void Milestones::report_saved_step(const std::string& cause, const TrainProgress& saved) const {
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

std::string Milestones::lost_with_others() const {
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
