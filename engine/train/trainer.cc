// Trainer: the loop and the few things that ranks agree on between steps.
#include "engine/train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

namespace engine {
namespace {

// How long an orderly stop may take to be noticed by all ranks, and hence how often they talk about it.
constexpr double kExchangeSeconds = 0.25;
constexpr std::int64_t kMaxStepsBetweenExchanges = 1000;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

Trainer::Trainer(const TrainerOptions& options, const TrainerParts& parts, const std::atomic<int>& stop_signal)
    : options_(options), p_(parts), stop_signal_(stop_signal) {}

TrainResult Trainer::run() {
  TrainProgress& progress = p_.state.progress;
  const double start = reported_at_ = exchanged_at_ = now();
  reported_samples_ = progress.samples_seen;
  exchanged_step_ = progress.global_step;
  next_exchange_ = progress.global_step + 1;
  saved_step_ = progress.global_step > 0 ? progress.global_step : -1;  // a resumed state is on disk already
  p_.loader.seek(progress.epoch, progress.step_in_epoch);
  if (options_.log_every > 0) p_.state.policy.measure_spread();
  while (progress.global_step < options_.total_steps && stop_ == 0) {
    step();
    const bool epoch_end = advance();
    if (epoch_end) synchronize(p_.control, p_.state);
    exchange();
    for (TrainObserver* o : p_.observers) o->on_step(progress);
    if (due(options_.evaluate, epoch_end)) evaluate();
    if (due(options_.save, epoch_end)) save();
  }
  synchronize(p_.control, p_.state);
  if (saved_step_ != progress.global_step) save();
  const AveragingPolicy& policy = p_.state.policy;
  TrainResult result{progress, now() - start, stop_, policy.coverage(), policy.averagings(), policy.bytes_sent()};
  for (TrainObserver* o : p_.observers) o->on_end(result);
  return result;
}

StepCounts Trainer::step_counts(const io::Batch& batch) const {
  StepCounts counts{.local = batch.count(), .global = p_.sampler.global_count(batch.step), .island = 0};
  for (const int rank : p_.island) counts.island += p_.sampler.local_count(batch.step, rank);
  return counts;
}

void Trainer::step() {
  const io::Batch& batch = p_.loader.next();
  const StepCounts counts = step_counts(batch);
  AveragingPolicy& policy = p_.state.policy;
  last_ = p_.executor.forward(
      {batch.count(), batch.samples, batch.tokens, batch.labels, batch.sample_ids, static_cast<std::uint64_t>(batch.epoch)},
      /*training=*/true);
  // A mean over positions (text) as well as over samples: rows per sample are the same on every rank.
  const double rows_per_sample = last_.rows > 0 ? static_cast<double>(last_.rows) / static_cast<double>(counts.local) : 1;
  p_.executor.backward(policy.loss_scale(counts) / rows_per_sample, Write::kOverwrite,
                       [&policy](std::int64_t elements) { policy.gradients_ready(elements); });
  policy.finish_gradients();
  ParameterBuffer& parameters = p_.state.model.parameters;
  lr_ = p_.learning_rate.at(p_.state.progress.global_step);
  p_.state.optimizer.step(p_.context, lr_, clip_factor(p_.context, parameters.gradients, options_.clip_grad),
                          parameters.gradients, parameters.values);
  policy.after_update(counts, lr_);
}

bool Trainer::advance() {
  TrainProgress& progress = p_.state.progress;
  progress.samples_seen += p_.sampler.global_count(progress.step_in_epoch);
  ++progress.global_step;
  correct_ += last_.correct;
  rows_ += last_.rows;
  if (p_.activity) {
    char text[48];
    const int length = std::snprintf(text, sizeof text, "step %lld done", static_cast<long long>(progress.global_step));
    p_.activity(std::string_view(text, static_cast<std::size_t>(length)));
  }
  if (++progress.step_in_epoch < p_.sampler.steps_per_epoch()) return false;
  progress.step_in_epoch = 0;
  ++progress.epoch;
  return true;
}

void Trainer::exchange() {
  const TrainProgress& progress = p_.state.progress;
  const std::int64_t step_in_epoch = progress.step_in_epoch == 0 ? p_.sampler.steps_per_epoch() : progress.step_in_epoch;
  const bool report = options_.log_every > 0 && step_in_epoch % options_.log_every == 0;
  const bool last = progress.global_step == options_.total_steps;
  if (!report && !last && progress.global_step < next_exchange_) return;

  // One small sum: the step's loss, the running accuracy, and whether anybody was asked to stop.
  const double seconds = now();
  const double step_seconds =
      (seconds - exchanged_at_) / static_cast<double>(std::max<std::int64_t>(1, progress.global_step - exchanged_step_));
  std::array<double, 6> sums{last_.loss_sum,
                             static_cast<double>(last_.rows),
                             static_cast<double>(correct_),
                             static_cast<double>(rows_),
                             static_cast<double>(stop_signal_.load()),
                             step_seconds};
  const int world = p_.control.world_size();
  if (world > 1) {
    std::array<double, 1> signal{sums[4]};
    p_.control.all_reduce(signal.data(), 1, backends::DataType::kF64, backends::ReduceOp::kMax);
    p_.control.all_reduce(sums.data(), sums.size(), backends::DataType::kF64, backends::ReduceOp::kSum);
    sums[4] = signal[0];
  }
  stop_ = static_cast<int>(sums[4]);
  const double mean_step = std::max(sums[5] / world, 1e-6);
  next_exchange_ = progress.global_step + std::clamp<std::int64_t>(static_cast<std::int64_t>(kExchangeSeconds / mean_step), 1,
                                                                   kMaxStepsBetweenExchanges);
  exchanged_at_ = seconds;
  exchanged_step_ = progress.global_step;
  if (!report) return;

  AveragingPolicy& policy = p_.state.policy;
  const StepReport step_report{
      progress,
      sums[1] > 0 ? sums[0] / sums[1] : 0,
      sums[3] > 0 ? sums[2] / sums[3] : 0,
      lr_,
      static_cast<double>(progress.samples_seen - reported_samples_) / std::max(seconds - reported_at_, 1e-9),
      policy.averagings(),
      policy.bytes_sent(),
      policy.take_spread()};
  policy.measure_spread();
  reported_at_ = seconds;
  reported_samples_ = progress.samples_seen;
  for (TrainObserver* o : p_.observers) o->on_report(step_report);
}

bool Trainer::due(const Every& every, bool epoch_end) const {
  const TrainProgress& progress = p_.state.progress;
  if (every.count <= 0) return false;
  if (every.epochs) return epoch_end && progress.epoch % every.count == 0;
  return progress.global_step % every.count == 0;
}

void Trainer::evaluate() {
  if (p_.evaluator == nullptr) return;
  if (p_.activity) p_.activity("evaluation");
  const double start = now();
  EvalReport report = p_.evaluator->run();
  report.progress = p_.state.progress;
  for (TrainObserver* o : p_.observers) o->on_eval(report);
  const double spent = now() - start;  // not training time: keeps samples/s honest
  reported_at_ += spent;
  exchanged_at_ += spent;
}

void Trainer::save() {
  if (p_.keeper == nullptr) return;
  if (p_.activity) p_.activity("saving a checkpoint");
  const double start = now();
  const std::string path = p_.keeper->save(p_.state);
  saved_step_ = p_.state.progress.global_step;
  for (TrainObserver* o : p_.observers) o->on_save(p_.state.progress, path);
  reported_at_ += now() - start;
  exchanged_at_ += now() - start;
}

}  // namespace engine
