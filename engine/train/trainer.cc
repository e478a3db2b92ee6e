// Trainer: the loop and the few things that ranks agree on between steps.
#include "engine/train/trainer.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "backends/backend_error.h"
#include "engine/averaging/sums/ordered_tree.h"
#include "engine/train/checks/nonfinite_report.h"
#include "engine/train/step/loaded_batch.h"
#include "io/base/files/io_error.h"
#include "io/base/time/deadline.h"
#include "io/base/time/trace.h"

namespace engine {
namespace {

// How long an orderly stop may take to be noticed by all ranks, and hence how often they talk about
// it.
constexpr double kExchangeSeconds = 0.25;
constexpr std::int64_t kMaxStepsBetweenExchanges = 1000;

// Reports of a run without TrainerOptions::log_every: enough for a curve, and for a long run's
// reader.
constexpr std::int64_t kLeastReports = 100;
constexpr double kReportSeconds = 10;

}  // namespace

Trainer::Trainer(const TrainerOptions& options, const TrainerParts& parts,
                 const std::atomic<int>& stop_signal)
    : options_(options),
      p_(parts),
      stop_signal_(stop_signal),
      finite_(parts.control, parts.state, options.on_nonfinite, options.clip_grad > 0),
      newest_{parts.resumed_from, parts.state.progress.global_step},
      rank_phases_(static_cast<std::size_t>(parts.control.world_size())),
      own_seconds_(rank_phases_.size()) {
  draws_.reserve(static_cast<std::size_t>(parts.sampler.max_local_count()));
}

TrainResult Trainer::run() {
  TrainProgress& progress = p_.state.progress;
  const double start = reported_at_ = exchanged_at_ = base::steady_seconds();
  reported_samples_ = progress.samples_seen;
  reported_step_ = exchanged_step_ = progress.global_step;
  next_exchange_ = progress.global_step + 1;
  saved_step_ =
      progress.global_step > 0 ? progress.global_step : -1;  // a resumed state is on disk already
  evaluated_step_ = progress.global_step;  // what was there before is not evaluated
  if (p_.done) {
    saved_step_ = p_.done->saved;
    evaluated_step_ = p_.done->evaluated;
  }
  tell(finite_.bad_parameter());
  p_.loader.seek(progress.epoch, progress.step_in_epoch, progress.taken);
  if (has_reports())
    static_cast<void>(p_.state.policy.take_report());  // from here on the spread is measured
  try {
    train();
  } catch (const backends::InterruptedError& error) {
    stop_ = stop_signal_.load();
    interrupted_ = error.what();
    save_alone();
  } catch (const backends::PeerError&) {
    if (options_.steps_back) step_back();
    throw;
  }
  report_saved();
  const AveragingReport averaged = p_.state.policy.take_report();
  TrainResult result{progress,
                     base::steady_seconds() - start,
                     stop_,
                     averaged.coverage,
                     averaged.averagings,
                     averaged.bytes_sent};
  result.skipped_steps = finite_.skipped_steps();
  result.interrupted = interrupted_;
  result.paused = is_paused();
  result.leaves = result.paused && leaves_;
  if (p_.desync) result.coverage += "; " + p_.desync->summary();
  if (out_of_patience() && stop_ == 0 && progress.global_step < options_.total_steps)
    result.stopped_early = p_.best->why_stopped();
  for (TrainObserver* o : p_.observers) o->on_end(result);
  return result;
}

void Trainer::train() {
  const TrainProgress& progress = p_.state.progress;
  if (p_.desync) tell(p_.desync->start());
  catch_up();
  while (progress.global_step < options_.total_steps && stop_ == 0 && !out_of_patience() &&
         !pause_) {
    step();
    const bool epoch_end = advance();
    settled_ = Settled::kYes;
    const bool last = progress.global_step == options_.total_steps;
    if (epoch_end || last) {  // the last step: what is evaluated is what remains
      PhaseTimer timer;
      bring_together();
      timer.lap(phases_since_report_.communication);
    }
    if (p_.desync) tell(p_.desync->after_step(epoch_end));
    const bool averaged = average_weights();
    exchange();
    if (epoch_end && has_reports()) before_epoch_ = p_.work.results().total;
    report_saved();
    for (TrainObserver* o : p_.observers) o->on_step(progress);
    if (averaged || last || due(options_.evaluate, epoch_end)) evaluate();
    if (best_unsaved_ || due(options_.save, epoch_end)) save();
  }
  bring_together();
  if (is_paused()) return;
  if (p_.desync) tell(p_.desync->finish());
  tell(finite_.bad_parameter());
  // A stop is in a hurry.
  if (stop_ == 0 && evaluated_step_ != progress.global_step) evaluate();
  if (best_unsaved_ || saved_step_ != progress.global_step) save();
  if (p_.keeper != nullptr) p_.keeper->finish();
}

void Trainer::bring_together() {
  const base::TraceSpan span("bring together");
  synchronize(p_.control, p_.state);
}

const io::Batch& Trainer::next_batch() {
  const base::TraceSpan span("wait for data");
  return p_.loader.next();
}

// Only rank 0 of several may have to, and not what is on a device or what other ranks have.
bool Trainer::may_save_alone() const {
  return p_.keeper != nullptr && p_.control.rank() == 0 && p_.control.world_size() > 1 &&
         p_.state.control == nullptr && p_.state.shares == nullptr;
}

// A collective was given up for a stop. What this rank has is what a resumption needs where
// replicas are equal between steps, and this one is between two.
void Trainer::save_alone() {
  if (!may_save_alone()) return;
  TrainState& state = p_.state;
  restore_kept();
  const bool whole =
      settled_ == Settled::kYes && state.policy.together() && !first_not_finite(state.model, true);
  try {
    if (whole && saved_step_ != state.progress.global_step) p_.keeper->save_alone(state);
  } catch (const io::Error& error) {
    interrupted_ += std::string("; then the state could not be saved: ") + error.what();
  }
}

StepCounts Trainer::step_counts(const io::Batch& batch) const {
  const std::int64_t taken = p_.state.progress.taken;
  StepCounts counts{
      .local = batch.count(), .global = p_.sampler.global_count(batch.step, taken), .island = 0};
  for (const int rank : p_.island) counts.island += p_.sampler.local_count(batch.step, rank, taken);
  return counts;
}

bool Trainer::equal_shares(std::int64_t step) const {
  const std::int64_t taken = p_.state.progress.taken,
                     first = p_.sampler.local_count(step, 0, taken);
  for (int rank = 1; rank < p_.control.world_size(); ++rank)
    if (p_.sampler.local_count(step, rank, taken) != first) return false;
  return true;
}

void Trainer::step() {
  const base::TraceSpan span("step", {"step", p_.state.progress.global_step + 1});
  AveragingPolicy& policy = p_.state.policy;
  PhaseTimer timer;
  phases_ = {};
  const io::Batch& batch = next_batch();
  timer.lap(phases_.data);
  const StepCounts counts = step_counts(batch);
  lr_ = p_.learning_rate.at(p_.state.progress.global_step);
  GradientExchange* exchange = policy.begin_step(p_.state.home);
  timer.lap(phases_.communication);
  finite_.begin_step();
  keep_state(exchange);
  settled_ = Settled::kInStep;
  p_.work.step({.batch = view_of(batch, draws_),
                .global_count = counts.global,
                .equal_shares = equal_shares(batch.step),
                .scale = options_.losses_of_a_sample > 0 ? options_.losses_of_a_sample
                                                         : policy.loss_scale(counts),
                .lr = lr_,
                .clip_grad = options_.clip_grad,
                .exchange = exchange,
                .may_update = finite_.may_update()},
               phases_);
  settled_ = Settled::kUpdated;
  finite_.end_step();
  timer.skip();
  const base::TraceSpan end("end of step");
  policy.end_step(counts, lr_, p_.state.home);
  timer.lap(phases_.communication);
  phases_since_report_ += phases_;
}

// What a step changes before it is certain: statistics in forward, and what an exchange remembers.
// The statistics of a device are kept there, by the work.
void Trainer::keep_state(const GradientExchange* exchange) {
  if (!may_save_alone() && !options_.steps_back) return;
  changed_in_step_.clear();
  if (p_.state.control == nullptr)
    changed_in_step_ = {&p_.state.model.running, &p_.state.model.counters};
  if (options_.steps_back && exchange != nullptr)
    for (const PolicyState& s : p_.state.policy.state()) changed_in_step_.push_back(s.buffer);
  std::size_t bytes = 0;
  for (const FlatBuffer* buffer : changed_in_step_) bytes += buffer->bytes();
  before_step_.resize(bytes);  // allocates the first time only
  std::byte* to = before_step_.data();
  for (const FlatBuffer* buffer : changed_in_step_) {
    if (buffer->bytes() > 0) std::memcpy(to, buffer->data(), buffer->bytes());
    to += buffer->bytes();
  }
}

void Trainer::restore_kept() {
  if (settled_ != Settled::kInStep) return;
  p_.work.step_back();
  const std::byte* from = before_step_.data();
  for (const FlatBuffer* buffer : changed_in_step_) {
    if (buffer->bytes() > 0) std::memcpy(buffer->data(), from, buffer->bytes());
    from += buffer->bytes();
  }
  settled_ = Settled::kYes;
}

// The update is the last thing that a step does, so before it only statistics have changed; behind
// it only replicas that have not been averaged.
void Trainer::step_back() {
  restore_kept();
  if (settled_ == Settled::kUpdated) {
    static_cast<void>(advance());
    settled_ = Settled::kYes;
  }
  p_.state.whole = settled_ == Settled::kYes;
}

// What was due after the last step and was not finished: by ranks that went on with others, or, of
// an evaluation, by a run that was stopped.
void Trainer::catch_up() {
  TrainState& state = p_.state;
  const bool epoch_end = state.progress.step_in_epoch == 0;
  const std::int64_t step = state.progress.global_step;
  if (step == 0) return;
  if (p_.done && due(options_.evaluate, epoch_end) && evaluated_step_ != step)
    state.evaluation_left = EvaluationLeft::kAll;
  const EvaluationLeft left = state.evaluation_left;
  if (left == EvaluationLeft::kAll && p_.evaluator != nullptr)
    evaluate();
  else if (left == EvaluationLeft::kAverage && p_.evaluator != nullptr && has_average())
    evaluate_average();
  else
    state.evaluation_left = EvaluationLeft::kNone;
  // The snapshot says that the evaluation is left: the next resumption would do it again.
  const bool is_done =
      left != EvaluationLeft::kNone && state.evaluation_left == EvaluationLeft::kNone;
  const bool save_due = p_.done && due(options_.save, epoch_end) && saved_step_ != step;
  if (best_unsaved_ || save_due || (is_done && !p_.done)) save();
}

bool Trainer::is_paused() const {
  return pause_ && stop_ == 0 && p_.state.progress.global_step < options_.total_steps &&
         !out_of_patience();
}

void Trainer::settle() { static_cast<void>(p_.work.results()); }

bool Trainer::advance() {
  TrainProgress& progress = p_.state.progress;
  progress.samples_seen += p_.sampler.global_count(progress.step_in_epoch, progress.taken);
  progress.taken = 0;
  ++progress.global_step;
  if (p_.activity) {
    char text[48];
    const int length = std::snprintf(text, sizeof text, "step %lld done",
                                     static_cast<long long>(progress.global_step));
    p_.activity(std::string_view(text, static_cast<std::size_t>(length)));
  }
  if (++progress.step_in_epoch < p_.sampler.steps_per_epoch()) return false;
  progress.step_in_epoch = 0;
  ++progress.epoch;
  return true;
}

// The same bits on every backend. `signal`, one of the values, becomes the greatest instead.
void Trainer::sum_over_ranks(std::span<double> values, double& signal) {
  const auto world = static_cast<std::size_t>(p_.control.world_size());
  if (world == 1) return;
  const std::size_t each = values.size(), at = static_cast<std::size_t>(&signal - values.data());
  gathered_.resize(each * world);  // allocates the first time only
  p_.control.all_gather(values.data(), values.size_bytes(), gathered_.data());
  double greatest = 0;
  for (std::size_t r = 0; r < world; ++r) greatest = std::max(greatest, gathered_[r * each + at]);
  fold_tree(world, [&](std::size_t into, std::size_t from) {
    add_elements(DType::kF64, gathered_.data() + into * each, gathered_.data() + from * each, each);
  });
  std::copy_n(gathered_.begin(), each, values.begin());
  signal = greatest;
}

bool Trainer::is_report_step() const {
  const std::int64_t step = p_.state.progress.global_step;
  if (options_.log_every) return *options_.log_every > 0 && step % *options_.log_every == 0;
  const std::int64_t between = std::max<std::int64_t>(1, options_.total_steps / kLeastReports);
  return step % between == 0 || step == options_.total_steps;
}

void Trainer::exchange() {
  const TrainProgress& progress = p_.state.progress;
  bool report_due = is_report_step();
  const bool last = progress.global_step == options_.total_steps;
  if (!report_due && !last && progress.global_step < next_exchange_) return;

  const base::TraceSpan span("exchange");
  PhaseTimer timer;
  const StepResults results = p_.work.results();
  timer.lap(phases_since_report_.backward);  // what a device had still to do

  // One small sum: the step's loss, the running accuracy, and whether anybody was asked to stop.
  const double seconds = base::steady_seconds();
  const double step_seconds =
      (seconds - exchanged_at_) /
      static_cast<double>(std::max<std::int64_t>(1, progress.global_step - exchanged_step_));
  const FiniteGuard::Signs own = finite_.signs(results);
  const bool pause = p_.pause && p_.pause();
  // Not at once: those that have just come may not have the state yet, and need this rank for it.
  const bool leave = std::exchange(has_exchanged_, true) && p_.leave && p_.leave();
  // By one rank's clock, so that all agree.
  const bool overdue =
      !options_.log_every && p_.control.rank() == 0 && seconds - reported_at_ >= kReportSeconds;
  std::array<double, 11> sums{results.last.loss_sum,
                              static_cast<double>(results.last.rows),
                              static_cast<double>(results.total.correct - before_epoch_.correct),
                              static_cast<double>(results.total.rows - before_epoch_.rows),
                              static_cast<double>(stop_signal_.load()),
                              step_seconds,
                              own.loss,
                              own.norm,
                              pause ? 1.0 : 0.0,
                              leave ? 1.0 : 0.0,
                              overdue ? 1.0 : 0.0};
  sum_over_ranks(sums, sums[4]);
  timer.lap(phases_since_report_.communication);  // here ranks wait for slow ones, too
  stop_ = static_cast<int>(sums[4]);
  const bool may_leave = p_.control.world_size() - sums[9] >= options_.least_ranks;
  pause_ = sums[8] > 0 || (sums[9] > 0 && may_leave);
  leaves_ = leave && may_leave;
  if (sums[9] > 0 && !may_leave && stop_ == 0) stop_ = options_.leave_signal;
  const double mean_step = std::max(sums[5] / p_.control.world_size(), 1e-6);
  next_exchange_ = progress.global_step +
                   std::clamp<std::int64_t>(static_cast<std::int64_t>(kExchangeSeconds / mean_step),
                                            1, kMaxStepsBetweenExchanges);
  exchanged_at_ = seconds;
  exchanged_step_ = progress.global_step;
  report_due = report_due || sums[10] > 0;
  const bool only_one = has_reports() && reports_ == 0 && (last || stop_ != 0);
  const double loss = sums[1] > 0 ? sums[0] / sums[1] : 0;
  for (TrainObserver* o : p_.observers) o->on_loss(progress, loss);
  tell(finite_.judge({.loss = sums[6], .norm = sums[7]}));
  if (!report_due && !only_one) return;
  const double accuracy = sums[3] > 0 ? sums[2] / sums[3] : 0;
  report(loss, options_.has_labels ? std::optional(accuracy) : std::nullopt, seconds);
}

void Trainer::report(double loss, std::optional<double> accuracy, double seconds) {
  const TrainProgress& progress = p_.state.progress;
  const StepPhases own =
      phases_since_report_.over(static_cast<double>(progress.global_step - reported_step_));
  rank_phases_.front() = own;
  if (p_.control.world_size() > 1) p_.control.all_gather(&own, sizeof own, rank_phases_.data());

  StepReport report{.progress = progress,
                    .loss = loss,
                    .train_accuracy = accuracy,
                    .lr = lr_,
                    .ranks = rank_phases_};
  report.samples_per_s = static_cast<double>(progress.samples_seen - reported_samples_) /
                         std::max(seconds - reported_at_, 1e-9);
  report.step_seconds =
      (seconds - reported_at_) / static_cast<double>(progress.global_step - reported_step_);
  for (std::size_t r = 0; r < rank_phases_.size(); ++r) {
    report.phases += rank_phases_[r];
    own_seconds_[r] = rank_phases_[r].own();
    if (own_seconds_[r] > own_seconds_[static_cast<std::size_t>(report.slowest_rank)])
      report.slowest_rank = static_cast<int>(r);
  }
  report.phases = report.phases.over(static_cast<double>(rank_phases_.size()));
  if (const std::size_t others = own_seconds_.size() - 1; others > 0) {
    std::sort(own_seconds_.begin(), own_seconds_.end());
    const double median = (own_seconds_[(others - 1) / 2] + own_seconds_[others / 2]) / 2;
    report.slowest_ratio = own_seconds_.back() / std::max(median, 1e-12);
  }
  const AveragingReport averaged = p_.state.policy.take_report();
  report.averagings = averaged.averagings;
  report.bytes_sent = averaged.bytes_sent;
  report.spread = averaged.spread;
  report.gradient_norm = finite_.gradient_norm();
  report.skipped_steps = finite_.skipped_steps();
  reported_at_ = seconds;
  reported_samples_ = progress.samples_seen;
  reported_step_ = progress.global_step;
  ++reports_;
  phases_since_report_ = {};
  for (TrainObserver* o : p_.observers) o->on_report(report);
}

void Trainer::tell(const DesyncReport* found) {
  if (found == nullptr) return;
  for (TrainObserver* o : p_.observers) o->on_desync(p_.state.progress, *found);
  if (found->action == OnDesync::kAbort)
    throw DesyncError(to_string(*found, p_.control.world_size()));
}

void Trainer::tell(const std::string& not_finite) {
  const std::optional<NonFiniteReport> found = finite_.note(not_finite);
  if (!found) return;
  for (TrainObserver* o : p_.observers) o->on_nonfinite(p_.state.progress, *found);
  if (found->action != OnNonFinite::kContinue) give_up(*found);
}

// The newest from which a step has had a finite loss: that its parameters are does not say so.
std::string Trainer::good_snapshot(const NonFiniteReport& found) const {
  const bool older = newest_.step >= found.last_good && found.last_good >= 0;
  std::error_code unknown;
  return older && std::filesystem::exists(second_newest_.path, unknown) ? second_newest_.path
                                                                        : newest_.path;
}

void Trainer::give_up(const NonFiniteReport& found) {
  try {  // a snapshot may still be on its way to the disk
    if (p_.keeper != nullptr) p_.keeper->finish();
  } catch (const std::exception&) {
    // That it did not get there is not why the run ends.
  }
  report_saved();
  std::string text = to_error(found, good_snapshot(found));
  if (p_.control.world_size() > 1) broadcast_text(p_.control, text);  // rank 0 knows its files
  throw NonFiniteError(text);
}

bool Trainer::due(const Every& every, bool epoch_end) const {
  const TrainProgress& progress = p_.state.progress;
  if (every.count <= 0) return false;
  if (every.epochs) return epoch_end && progress.epoch % every.count == 0;
  return progress.global_step % every.count == 0;
}

bool Trainer::average_weights() {
  const TrainProgress& progress = p_.state.progress;
  const bool last = progress.global_step == options_.total_steps;
  if (p_.average == nullptr || (progress.step_in_epoch != 0 && !last)) return false;
  if (p_.activity) p_.activity("averaging the weights of epochs");
  const base::TraceSpan span("average the weights of epochs");
  const double start = base::steady_seconds();
  const bool before = p_.average->ready();
  settled_ = Settled::kNo;
  p_.average->end_epoch(p_.state.home, progress, last);
  settled_ = Settled::kYes;
  const double spent = base::steady_seconds() - start;
  reported_at_ += spent;
  exchanged_at_ += spent;
  return !before && p_.average->ready();
}

void Trainer::evaluate() {
  if (p_.evaluator == nullptr) return;
  p_.state.evaluation_left = EvaluationLeft::kAll;  // for a snapshot, where a stop cuts it off
  const base::TraceSpan span("evaluation");
  tell(finite_.bad_parameter());
  if (p_.activity) p_.activity("evaluation");
  const double start = base::steady_seconds();
  if (p_.best != nullptr && p_.best->keeps() && p_.state.progress.step_in_epoch != 0)
    synchronize(p_.control, p_.state);  // what is evaluated is what a snapshot holds
  std::optional<EvalReport> report = evaluate_weights();
  if (!report) return;  // a stop is in a hurry
  evaluated_step_ = report->progress.global_step;
  if (p_.best != nullptr && p_.best->judge(*report)) best_unsaved_ = p_.keeper != nullptr;
  p_.state.evaluation_left = EvaluationLeft::kNone;
  for (TrainObserver* o : p_.observers) o->on_eval(*report);
  if (has_average()) evaluate_average();
  const double spent = base::steady_seconds() - start;  // not training time: keeps samples/s honest
  reported_at_ += spent;
  exchanged_at_ += spent;
}

std::optional<EvalReport> Trainer::evaluate_weights() {
  const HostView view(p_.state.home, Access::kRead);
  std::optional<EvalReport> report = p_.evaluator->run_unless(stop_signal_, stop_);
  if (report) report->progress = p_.state.progress;
  return report;
}

void Trainer::evaluate_average() {
  p_.state.evaluation_left = EvaluationLeft::kAverage;
  std::optional<EvalReport> report;
  {
    const HostView view(p_.state.home, Access::kRead);  // what is put in place is taken out again
    const AverageInPlace average(*p_.average);
    report = evaluate_weights();
  }
  if (!report) return;
  report->weights = p_.average->name();
  p_.state.evaluation_left = EvaluationLeft::kNone;
  for (TrainObserver* o : p_.observers) o->on_eval(*report);
}

void Trainer::report_saved() {
  if (p_.keeper == nullptr) return;
  const auto saved = p_.keeper->take_saved();
  if (!saved) return;
  second_newest_ = std::exchange(newest_, {saved->path, saved->progress.global_step});
  for (TrainObserver* o : p_.observers) o->on_save(saved->progress, saved->path);
}

void Trainer::save() {
  if (p_.keeper == nullptr) return;
  const base::TraceSpan span("save");
  const double start = base::steady_seconds();
  const std::string not_finite = finite_.bad_parameter();
  tell(not_finite);
  if (p_.activity) p_.activity("saving a checkpoint");
  // Brings the replicas together first. What is not finite replaces nothing.
  p_.keeper->save(p_.state, {.best = std::exchange(best_unsaved_, false) && not_finite.empty(),
                             .keep_all = !not_finite.empty()});
  saved_step_ = p_.state.progress.global_step;
  report_saved();
  reported_at_ += base::steady_seconds() - start;
  exchanged_at_ += base::steady_seconds() - start;
}

}  // namespace engine
