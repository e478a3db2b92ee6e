// Fills the facts of a session from its parts.
#include <algorithm>

#include "io/gpu/usable_devices.h"
#include "tools/run/choices/averaging_choice.h"
#include "tools/run/session/train_session_impl.h"

namespace tools {
namespace {

ModelFacts model_facts(const SessionOptions& options, const SessionModel& model) {
  const engine::ParameterBuffer& parameters = model.state.parameters;
  const auto all = parameters.values.slots();
  const std::size_t trained = parameters.gradients.slots().size();
  ModelFacts found{.name = options.model.name,
                   .parameters = model.state.parameter_count(),
                   .dtype = options.compute.dtype,
                   .tensors = std::ssize(all),
                   .frozen_tensors = static_cast<std::int64_t>(all.size() - trained)};
  for (const engine::FlatBuffer::Slot& slot : all.subspan(trained))
    found.frozen_parameters += slot.count;
  found.frozen_layers = std::ranges::count_if(model.plan.steps, &engine::PlanStep::still);
  const int layers = layers_that_use_replicas(model.graph);
  if (options.model.synchronized_statistics || layers > 0) found.synchronized_layers = layers;
  return found;
}

DataFacts data_facts(const SessionData& data, const std::string& digest, int world) {
  const std::int64_t size = data.train().size();
  DataFacts found{.name = data.train().name,
                  .train = size,
                  .test = data.test().size(),
                  .digest = digest,
                  .columns = data.splits().columns,
                  .warnings = data.splits().warnings,
                  .partition = data.partition()};
  if (data.sampling().shard == io::Shard::kFile)
    for (int rank = 0; rank < world; ++rank)
      found.shards.push_back(io::file_shard(size, rank, world));
  return found;
}

BatchFacts batch_facts(const ComputeOptions& compute, const SessionData& data, int world) {
  BatchFacts found{.global = data.global_batch(),
                   .devices = std::max(1, static_cast<int>(compute.device.devices.size())),
                   .micro_batches = compute.micro_batches,
                   .shares = {},
                   .steps_per_epoch = data.sampler().steps_per_epoch()};
  found.even =
      found.global % (world * found.micro_batches) == 0 && data.sampling().parts % world == 0;
  for (int rank = 0; rank < world; ++rank)
    found.shares.push_back(data.sampler().local_count(0, rank));
  return found;
}

}  // namespace

RankFacts TrainSession::Impl::rank_facts() const {
  RankFacts found{
      .count = group.world_size(),
      .full_count = options.data.batch_scales ? options.data.max_ranks : 0,
      .computes = compute_text(
          compute, model.pool.physical_threads(),
          engine::stored_dtype(model.graph, plan_options(options, compute, data, model.pool))),
      .bound_to = compute.binding ? compute.binding->text() : "",
      .backend = group.backend(),
      .backend_reason = group.backend_reason(),
      .processors = processors,
      .translation = {},
      .on_device = compute.cuda()};
  if (compute.cuda()) found.translation = base::cuda::translation_notice(compute.device.index);
  return found;
}

AveragingFacts TrainSession::Impl::averaging_facts() const {
  AveragingFacts found{.text = averaging_text(options.averaging, policy->name())};
  if (options.averaging.canonical) found.canonical_shards = options.averaging.shards;
  found.plan = averaging_plan(options.averaging, group, model.state, *model.optimizer,
                              {.first = state.progress.global_step,
                               .of_epoch = data.sampler().steps_per_epoch(),
                               .total = total_steps,
                               .first_of_epochs = epoch_steps.step_of_epoch(0)});
  return found;
}

UpdateFacts TrainSession::Impl::update_facts() const {
  return {
      .optimizer = model.optimizer->spec().name,
      .details = model.optimizer->text(),
      .lr = rate.base,
      .lr_arithmetic = rate_arithmetic(options.update, group.world_size(), options.data.max_ranks),
      .schedule = rate.schedule};
}

LengthFacts TrainSession::Impl::length_facts() const {
  using Left = LengthFacts::Left;
  const engine::TrainProgress& progress = state.progress;
  const bool by_steps = options.steps > 0;
  LengthFacts found{.total_steps = total_steps,
                    .epochs = run_length(options, data).total_epochs(epoch_steps.start),
                    .by_steps = by_steps,
                    .asked = by_steps ? options.steps : options.epochs,
                    .done = by_steps ? progress.global_step : progress.epoch,
                    .done_steps = progress.global_step};
  if (evaluator != nullptr && state.pending_evaluation != engine::PendingEvaluation::kNone) {
    found.left = Left::kEvaluation;
  } else if (progress.global_step >= total_steps) {
    found.left = Left::kNothing;
  } else if (best && best->should_stop_early()) {
    found.left = Left::kNothingForPatience;
    found.why_stopped = best->why_stopped();
    found.patience = options.best.patience;
  }
  return found;
}

std::string TrainSession::Impl::capture_text() const {
  if (!compute.cuda()) return "";
  const int world = group.world_size();
  if (wires.device && data.global_batch() % world != 0)
    return "not captured: the ranks' shares of a batch are unequal";
  const bool on_host =
      !wires.device && sums_gradients_after(state.progress.global_step, options.averaging, world);
  return on_host ? "not captured: gradients pass through host memory" : work->graph_text();
}

void TrainSession::Impl::gather_facts(StartFacts start) {
  const int world = group.world_size();
  facts = {.model = model_facts(options, model),
           .data = data_facts(data, data_digest.text, world),
           .batch = batch_facts(options.compute, data, world),
           .ranks = rank_facts(),
           .averaging = averaging_facts(),
           .update = update_facts(),
           .start = std::move(start),
           .length = length_facts(),
           .seed = options.seed,
           .capture = capture_text()};
}

}  // namespace tools
