// Implements evaluations and checkpoints, and tracks those that are pending.
#include "engine/train/milestones.h"

#include <utility>

#include "backends/backend_error.h"
#include "engine/core/cuda.h"
#include "io/base/time/trace.h"

namespace engine {

void Milestones::begin() {
  const std::int64_t step = context_.progress().global_step;
  // A resumed state is already on disk; the state before the first step is not evaluated.
  context_.done = context_.parts.done.value_or(
      TrainerParts::Done{.evaluated = step, .saved = step > 0 ? step : -1});
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
  const std::int64_t step = context_.progress().global_step;
  if (step == 0) return;
  const bool carried_over = parts.done.has_value();
  const bool is_averaged = make_up_average();
  // The checkpoint states that the evaluation is pending: the next resumption would repeat it.
  const bool is_made_up = make_up_evaluation() && !carried_over;
  const bool is_unsaved = carried_over && context_.done.saved != step;
  // The ranks before these may have evaluated the step, and failed to save it.
  if (is_unsaved && parts.checkpoints != nullptr && parts.best != nullptr &&
      parts.best->is_best(step))
    best_unsaved_ = true;
  const bool save_due =
      is_unsaved && is_due(context_.options.save, context_.progress().step_in_epoch == 0);
  if (best_unsaved_ || save_due || is_made_up || is_averaged) save();
}

bool Milestones::make_up_average() {
  WeightAverage* const average = context_.parts.average;
  if (average == nullptr) return false;
  const bool is_behind = average->is_behind();
  if (is_behind) add_epoch_to_average();
  const bool completes = average->is_incomplete(context_.progress());
  if (completes) complete_average(/*is_saved=*/true);
  return is_behind || completes;
}

bool Milestones::make_up_evaluation() {
  const TrainerParts& parts = context_.parts;
  TrainState& state = parts.state;
  const TrainProgress& at = state.progress;
  if (parts.done.has_value() && is_due(context_.options.evaluate, at.step_in_epoch == 0) &&
      context_.done.evaluated != at.global_step)
    state.pending_evaluation = PendingEvaluation::kAll;
  const PendingEvaluation left = state.pending_evaluation;
  if (left == PendingEvaluation::kAll && parts.evaluator != nullptr)
    evaluate();
  else if (left == PendingEvaluation::kAverage && parts.evaluator != nullptr && has_average())
    evaluate_average();
  else
    state.pending_evaluation = PendingEvaluation::kNone;
  return left != PendingEvaluation::kNone && state.pending_evaluation == PendingEvaluation::kNone;
}

void Milestones::add_epoch_to_average() {
  const base::TraceSpan span("average the weights of epochs");
  const TrainClock::Exclusion exclusion(context_.clock);
  context_.set_activity("averaging the weights of epochs");
  recovery_.mark_unknown();
  context_.parts.average->end_epoch(context_.parts.state.home, context_.progress());
  recovery_.mark_complete();
}

bool Milestones::average_weights() {
  WeightAverage* const average = context_.parts.average;
  const TrainProgress& progress = context_.progress();
  if (average == nullptr || (progress.step_in_epoch != 0 && !context_.is_last_step())) return false;
  const bool before = average->ready();
  add_epoch_to_average();
  if (average->is_incomplete(progress)) complete_average(/*is_saved=*/false);
  return !before && average->ready();
}

void Milestones::complete_average(bool is_saved) {
  const TrainerParts& parts = context_.parts;
  if (!is_saved && parts.checkpoints != nullptr) {
    if (parts.evaluator != nullptr) parts.state.pending_evaluation = PendingEvaluation::kAll;
    save();
    parts.checkpoints->finish();
  }
  const base::TraceSpan span("complete the average");
  const TrainClock::Exclusion exclusion(context_.clock);
  context_.set_activity("recomputing the statistics of the average");
  parts.average->complete(parts.state.home, context_.progress());
  context_.done.saved = -1;  // the checkpoint of this step is without what is complete now
}

bool Milestones::evaluates_after_step(bool epoch_end, bool must_evaluate) const {
  return context_.parts.evaluator != nullptr &&
         (must_evaluate || is_due(context_.options.evaluate, epoch_end));
}

void Milestones::note_due_evaluation() {
  const TrainProgress& at = context_.progress();
  if (at.global_step > 0 && context_.done.evaluated != at.global_step &&
      evaluates_after_step(at.step_in_epoch == 0, context_.is_last_step()))
    context_.parts.state.pending_evaluation = PendingEvaluation::kAll;
}

void Milestones::after_step(bool epoch_end, bool must_evaluate) {
  if (evaluates_after_step(epoch_end, must_evaluate)) evaluate();
  if (best_unsaved_ || is_due(context_.options.save, epoch_end)) save();
}

void Milestones::finish() {
  const std::int64_t step = context_.progress().global_step;
  // Skip the evaluation after a stop signal: little time is left.
  if (agreement_.stop_signal() == 0 && context_.done.evaluated != step) evaluate();
  if (best_unsaved_ || context_.done.saved != step) save();
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
  context_.done.evaluated = report->progress.global_step;
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
  if (context_.parts.checkpoints == nullptr || others_continue || context_.done.saved == step)
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
    lone_saver_.save_after_loss();
  } catch (const std::exception& failure) {
    lone_saver_.report_failure(failure);
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
  context_.done.saved = parts.state.progress.global_step;
  context_.report_saved();
}

void Milestones::save_after_data_error() noexcept {
  if (context_.parts.control.world_size() > 1) return lone_saver_.save_after_data_error();
  if (context_.parts.checkpoints == nullptr || !lone_saver_.has_unsaved_step()) return;
  try {
    save();
    context_.parts.checkpoints->finish();
    context_.report_saved();
    lone_saver_.report_saved_step("the next step failed", context_.progress());
  } catch (const std::exception& error) {
    lone_saver_.report_failure(error);
  }
}

}  // namespace engine
