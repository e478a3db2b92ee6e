// Trainer: the loop over batches.
#include "engine/train/trainer.h"

#include <cmath>
#include <cstdio>
#include <exception>

#include "backends/backend_error.h"
#include "engine/train/replicas/averaging_counts.h"
#include "engine/train/step/batch_views.h"
#include "io/base/files/io_error.h"
#include "io/base/time/deadline.h"
#include "io/base/time/trace.h"

namespace engine {

Trainer::Trainer(const TrainerOptions& options, const TrainerParts& parts,
                 const std::atomic<int>& stop_signal)
    : context_(options, parts, stop_signal),
      recovery_(context_),
      agreement_(context_),
      reports_(context_),
      lone_saver_(context_, recovery_),
      milestones_(context_, recovery_, agreement_, lone_saver_),
      loss_weights_(options.loss_weights) {
  draws_.reserve(static_cast<std::size_t>(parts.sampler.max_local_count()));
}

TrainResult Trainer::run() {
  const double start = base::steady_seconds();
  begin();
  try {
    train();
  } catch (const backends::InterruptedError& error) {
    stop_alone(error.what());
  } catch (const backends::PeerError&) {
    if (context_.options.supports_rollback || context_.can_save_alone()) roll_back();
    if (!context_.options.supports_rollback) {
      milestones_.note_due_evaluation();
      lone_saver_.save_after_loss();
    }
    throw;
  }
  context_.report_saved();
  TrainResult ended = result(base::steady_seconds() - start);
  context_.observers.on_end(ended);
  return ended;
}

void Trainer::begin() {
  agreement_.begin();
  reports_.begin();
  milestones_.begin();
  recovery_.check_parameters();
  const bool set_here = context_.parts.balance || context_.parts.local_steps;
  if (set_here && due_shares() != context_.parts.sampler.shares())
    use_shares();
  else
    seek_loader();
}

void Trainer::seek_loader() {
  const TrainProgress& progress = context_.progress();
  context_.parts.loader.seek(progress.epoch, progress.step_in_epoch, progress.taken,
                             context_.parts.state.divisions);
}

TrainResult Trainer::result(double seconds) {
  const TrainerParts& parts = context_.parts;
  const AveragingReport averaged = take_report_of_run(parts.state.policy);
  TrainResult ended{context_.progress(),      seconds,
                    agreement_.stop_signal(), averaged.coverage,
                    averaged.averagings,      averaged.bytes_sent};
  ended.skipped_steps = recovery_.skipped_steps();
  ended.interrupted = interrupted_;
  ended.paused = is_paused();
  ended.leaves = ended.paused && agreement_.leaves();
  if (parts.desync) ended.coverage += "; " + parts.desync->summary();
  if (milestones_.should_stop_early() && ended.signal == 0 &&
      ended.progress.global_step < context_.options.total_steps)
    ended.stopped_early = parts.best->why_stopped();
  return ended;
}

void Trainer::train() {
  DesyncCheck* const desync = context_.parts.desync;
  if (desync) handle_desync(desync->start());
  milestones_.catch_up();
  while (!is_over() && !agreement_.pauses()) {
    step();
    finish_step();
  }
  synchronize_replicas();
  if (is_paused()) return;
  if (desync) handle_desync(desync->finish());
  recovery_.check_parameters();
  milestones_.finish();
}

bool Trainer::is_over() const {
  return context_.progress().global_step >= context_.options.total_steps ||
         agreement_.stop_signal() != 0 || milestones_.should_stop_early();
}

bool Trainer::is_paused() const { return agreement_.pauses() && !is_over(); }

void Trainer::finish_step() {
  const TrainerParts& parts = context_.parts;
  const bool epoch_end = count_steps(), last = context_.is_last_step();
  recovery_.mark_complete();
  if (epoch_end || last) {  // the last step is evaluated in its final form
    PhaseTimer timer;
    synchronize_replicas();
    timer.lap(reports_.phases().communication);
  }
  if (parts.desync) handle_desync(parts.desync->after_step(epoch_end));
  const bool has_new_average = milestones_.average_weights();
  const bool must_evaluate = has_new_average || last;
  lone_saver_.keep_state(epoch_end, milestones_.evaluates_after_step(epoch_end, must_evaluate));
  exchange();
  if (epoch_end && reports_.are_wanted()) before_epoch_ = parts.work.results().total;
  context_.report_saved();
  context_.observers.on_step(context_.progress());
  milestones_.after_step(epoch_end, must_evaluate);
  if (!last) follow_policy();
}

void Trainer::synchronize_replicas() {
  const base::TraceSpan span("bring together");
  synchronize(context_.parts.control, context_.parts.state);
}

const io::Batch& Trainer::next_batch() {
  const base::TraceSpan span("wait for data");
  try {
    return context_.parts.loader.next();
  } catch (const std::exception&) {
    milestones_.save_after_data_error();
    throw;
  }
}

// Stops this rank after a collective was abandoned because of a stop signal.
void Trainer::stop_alone(const std::string& why) {
  agreement_.stop(context_.stop_signal.load());
  interrupted_ = why;
  if (context_.can_save_alone()) roll_back();
  milestones_.note_due_evaluation();
  try {
    if (const std::string lacks = lone_saver_.save_alone(); !lacks.empty())
      interrupted_ += "; " + lacks;
  } catch (const io::Error& error) {
    interrupted_ += std::string("; then the state could not be saved: ") + error.what();
  }
}

StepCounts Trainer::step_counts(const io::Batch& batch) const {
  const io::Sampler& sampler = context_.parts.sampler;
  const std::int64_t taken = context_.progress().taken;
  StepCounts counts{
      .local = batch.count(), .global = sampler.global_count(batch.step, taken), .island = 0};
  for (const int rank : context_.parts.island)
    counts.island += sampler.local_count(batch.step, rank, taken);
  const std::int64_t done = context_.progress().global_step + 1;
  counts.all_meet = milestones_.follow_next_step() || reports_.follow_step(done) ||
                    agreement_.is_due_after(done, /*at_once=*/false);
  return counts;
}

double Trainer::loss_scale(const io::Batch& batch, const StepCounts& counts) {
  const TrainProgress& progress = context_.progress();
  const StepWeights weights = loss_weights_.of_step(
      {.epoch = progress.epoch, .number = batch.step, .taken = progress.taken}, counts,
      batch.sample_ids, context_.parts.island, context_.parts.sampler);
  last_weight_ = weights.local;
  const TrainerOptions& options = context_.options;
  if (options.losses_per_sample > 0) return options.losses_per_sample;
  const double scale = context_.parts.state.policy.loss_scale(weights);
  // A step divides by the positions, which the weights already count.
  return loss_weights_.given() ? scale * static_cast<double>(options.positions) : scale;
}

std::span<const std::int64_t> Trainer::counts_of_ranks(std::int64_t step) {
  const io::Sampler& sampler = context_.parts.sampler;
  rank_counts_.resize(static_cast<std::size_t>(context_.parts.control.world_size()));
  for (std::size_t rank = 0; rank < rank_counts_.size(); ++rank)
    rank_counts_[rank] =
        sampler.local_count(step, static_cast<int>(rank), context_.progress().taken);
  return rank_counts_;
}

void Trainer::step() {
  const TrainerParts& parts = context_.parts;
  const TrainProgress& progress = context_.progress();
  const base::TraceSpan span("step", {"step", progress.global_step + 1});
  AveragingPolicy& policy = parts.state.policy;
  PhaseTimer timer;
  phases_ = {};
  const io::Batch& batch = next_batch();
  timer.lap(phases_.data);
  const StepCounts counts = step_counts(batch);
  lr_ = parts.learning_rate.at(progress.global_step);
  GradientExchange* exchange = policy.begin_step(parts.state.home);
  timer.lap(phases_.communication);
  compute(batch, counts, exchange);
  timer.skip();
  count_local_steps(batch.step);
  const base::TraceSpan end("end of step");
  left_out_ = policy.end_step(counts, lr_, parts.state.home);
  timer.lap(phases_.communication);
  reports_.phases() += phases_;
  if (parts.balance) parts.balance->add_step({static_cast<double>(counts.local), phases_.own()});
}

// A rank with fewer local steps makes no update in the others: momentum and weight decay would
// change its parameters without a gradient.
void Trainer::compute(const io::Batch& batch, const StepCounts& counts,
                      GradientExchange* exchange) {
  const TrainerParts& parts = context_.parts;
  const TrainerOptions& options = context_.options;
  const AveragingPolicy& policy = parts.state.policy;
  const double scale = loss_scale(batch, counts);
  idle_ = parts.local_steps != nullptr && counts.local == 0 && policy.coupling().steps_alone;
  const MayUpdate* may_update = recovery_.begin_step(exchange);
  if (!idle_)
    work({.batch = view_of(batch, draws_),
          .global_count = counts.global,
          .counts = counts_of_ranks(batch.step),
          .round = policy.round(),
          .scale = scale,
          .lr = lr_,
          .clip_grad = options.clip_grad,
          .exchange = exchange,
          .may_update = may_update});
  recovery_.end_update();
}

// A sample that contradicts the model ends the step in forward, before the update.
void Trainer::work(const StepRequest& request) {
  try {
    context_.parts.work.step(request, phases_);
  } catch (const InputError& error) {
    if (context_.parts.control.world_size() == 1) {
      recovery_.roll_back();
      milestones_.save_after_data_error();
    }
    throw InputError(std::string("training: ") + error.what());
  }
}

// Every rank knows which ranks took the step, so their counts need no exchange.
void Trainer::count_local_steps(std::int64_t step) {
  const TrainerParts& parts = context_.parts;
  if (parts.local_steps == nullptr || !parts.state.policy.coupling().steps_alone) return;
  for (int rank = 0; rank < parts.control.world_size(); ++rank)
    if (parts.sampler.local_count(step, rank, context_.progress().taken) == 0)
      parts.local_steps->add_idle(rank);
}

void Trainer::roll_back() {
  recovery_.roll_back();
  if (recovery_.is_updated()) {
    static_cast<void>(count_step());
    recovery_.mark_complete();
  }
  context_.parts.state.whole = recovery_.is_complete();
}

// The steps that the policy leaves out count as done.
bool Trainer::count_steps() {
  bool epoch_end = count_step();
  if (left_out_ == 0) return epoch_end;
  for (; left_out_ > 0; --left_out_) epoch_end = count_step();
  seek_loader();
  return epoch_end;
}

void Trainer::wait_for_steps() { static_cast<void>(context_.parts.work.results()); }

bool Trainer::count_step() {
  const io::Sampler& sampler = context_.parts.sampler;
  TrainProgress& progress = context_.parts.state.progress;
  progress.samples_seen += sampler.global_count(progress.step_in_epoch, progress.taken);
  progress.taken = 0;
  ++progress.global_step;
  char text[48];
  const int length = std::snprintf(text, sizeof text, "step %lld done",
                                   static_cast<long long>(progress.global_step));
  context_.set_activity(std::string_view(text, static_cast<std::size_t>(length)));
  if (++progress.step_in_epoch < sampler.steps_per_epoch()) return false;
  progress.step_in_epoch = 0;
  ++progress.epoch;
  context_.parts.state.divisions.clear();
  return true;
}

void Trainer::exchange() {
  const bool scheduled = reports_.is_due(), last = context_.is_last_step();
  // Only an averaging over all ranks finds ranks at the same point that run apart.
  const bool at_once = !context_.ranks_run_apart() || context_.parts.state.policy.is_in_sync();
  if (!scheduled && !last && !agreement_.is_due(at_once)) return;

  const base::TraceSpan span("exchange");
  PhaseTimer timer;
  StepResults results = context_.parts.work.results();
  if (idle_) results.last = {};
  timer.lap(reports_.phases().backward);  // includes work that was pending on a device

  const double now = context_.clock.seconds();
  const bool is_root = context_.parts.control.rank() == 0;  // its clock decides for all
  const StepSums sums = agreement_.exchange(
      {.loss_sum = results.last.loss_sum,
       .rows =
           loss_weights_.given() && !idle_ ? last_weight_ : static_cast<double>(results.last.rows),
       .correct = static_cast<double>(results.total.correct - before_epoch_.correct),
       .epoch_rows = static_cast<double>(results.total.rows - before_epoch_.rows),
       .not_finite = recovery_.signs(results),
       .overdue_reports = is_root && reports_.is_overdue(now) ? 1 : 0,
       .work = context_.parts.balance ? context_.parts.balance->measured() : MeasuredWork{}},
      now);
  timer.lap(reports_.phases().communication);  // includes waiting for slow ranks

  const double loss = sums.rows > 0 ? sums.loss_sum / sums.rows : 0;
  context_.observers.on_loss(context_.progress(), loss);
  recovery_.check(sums.not_finite);
  balance_shares();
  const bool only_one = reports_.is_none_yet() && (last || agreement_.stop_signal() != 0);
  if (!scheduled && sums.overdue_reports == 0 && !only_one) return;
  StepReport report{.progress = context_.progress(), .loss = loss, .lr = lr_};
  if (context_.options.has_labels)
    report.train_accuracy = sums.epoch_rows > 0 ? sums.correct / sums.epoch_rows : 0;
  report.gradient_norm = recovery_.gradient_norm();
  report.skipped_steps = recovery_.skipped_steps();
  reports_.report(report, now);
}

void Trainer::balance_shares() {
  ShareBalance* const balance = context_.parts.balance;
  if (balance != nullptr && !is_over() && !agreement_.pauses() &&
      balance->update(agreement_.work_of_ranks()))
    use_shares();
}

io::BatchShares Trainer::due_shares() const {
  const TrainerParts& parts = context_.parts;
  io::BatchShares shares;
  if (parts.balance)
    shares = parts.balance->shares();
  else if (parts.local_steps)
    shares = parts.local_steps->weights();
  return parts.local_steps && parts.state.policy.coupling().steps_alone ? shares.in_whole_steps()
                                                                        : shares;
}

void Trainer::follow_policy() {
  const TrainerParts& parts = context_.parts;
  const io::BatchShares& shares = parts.sampler.shares();
  if (parts.local_steps && !shares.are_equal() &&
      shares.are_in_whole_steps() != parts.state.policy.coupling().steps_alone)
    use_shares();
}

// Each step takes the next samples of the epoch's order, so no sample is lost or repeated, however
// the steps are divided.
void Trainer::use_shares() {
  const TrainerParts& parts = context_.parts;
  const io::BatchShares shares = due_shares();
  parts.sampler.set_shares(shares);
  parts.loader.set_shares(shares);
  seek_loader();
  const TrainProgress& progress = context_.progress();
  const bool whole = shares.are_in_whole_steps();
  const auto count =
      static_cast<double>(parts.sampler.global_count(progress.step_in_epoch, progress.taken));
  ShareReport report;
  if (parts.balance)
    report.samples_per_s.assign(parts.balance->speeds().begin(), parts.balance->speeds().end());
  for (int rank = 0; rank < parts.control.world_size(); ++rank) {
    if (whole) report.local_steps.push_back(shares.step_fraction(rank));
    report.samples.push_back(
        whole ? std::llround(count * shares.fraction(rank))
              : parts.sampler.local_count(progress.step_in_epoch, rank, progress.taken));
  }
  context_.observers.on_shares(progress, report);
}

void Trainer::handle_desync(const DesyncReport* found) {
  if (found == nullptr) return;
  context_.observers.on_desync(context_.progress(), *found);
  if (found->action == OnDesync::kAbort)
    throw DesyncError(to_string(*found, context_.parts.control.world_size()));
}

}  // namespace engine
