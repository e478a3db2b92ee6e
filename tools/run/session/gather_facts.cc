// Fills the facts of a session from its parts.
#include <algorithm>

#include "io/base/text/memory_text.h"
#include "io/gpu/usable_devices.h"
#include "tools/run/choices/averaging_choice.h"
#include "tools/run/choices/rate_choice.h"
#include "tools/run/session/session_parts.h"

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
  found.even = found.global % (world * found.micro_batches) == 0 &&
               data.sampling().parts % world == 0 && data.sampling().shares.are_equal();
  for (int rank = 0; rank < world; ++rank)
    found.shares.push_back(data.sampler().local_count(0, rank));
  return found;
}

RankFacts rank_facts(const SessionParts& s) {
  const Compute& compute = s.compute;
  const SessionModel& model = *s.model;
  RankFacts found{.count = s.group.world_size(),
                  .full_count = s.options.data.batch_scales ? s.options.data.max_ranks : 0,
                  .computes = compute_text(
                      compute, model.pool.physical_threads(),
                      engine::stored_dtype(model.graph, plan_options(s.setting(), model.pool))),
                  .bound_to = compute.binding ? compute.binding->text() : "",
                  .backend = s.group.backend(),
                  .backend_reason = s.group.backend_reason(),
                  .processors = s.host.processors,
                  .translation = {},
                  .device = compute.device};
  if (compute.cuda()) found.translation = base::cuda::translation_notice(compute.device.index);
  return found;
}

// Returns where a CUDA device averages parameters.
std::string place_of_averagings(const AveragingOptions& options, bool over_nccl) {
  using Options = AveragingOptions;
  if (options.stale.max_behind > 0)
    return "averagings in host memory: devices copy their parameters to and from it";
  if (codes_of(options, 0))
    return over_nccl ? "averagings on the devices, over NCCL"
                     : "averagings on the devices; codes of changes pass through host memory";
  if (options.method == Options::Method::kGossip && !over_nccl)
    return "averagings on the devices; pairs exchange parameters through host memory";
  return over_nccl ? "averagings on the devices, over NCCL"
                   : "averagings on the devices; what ranks exchange passes through host memory";
}

AveragingFacts averaging_facts(const SessionParts& s) {
  const AveragingOptions& options = s.options.averaging;
  AveragingFacts found{.text = averaging_text(options, s.policy->name())};
  if (options.canonical) found.canonical_shards = options.shards;
  found.plan =
      averaging_plan(options, s.group, s.model->state, *s.model->optimizer,
                     {.first = s.state.progress.global_step,
                      .of_epoch = s.input.data.sampler().steps_per_epoch(),
                      .total = s.schedule.total_steps,
                      .first_of_epochs = s.schedule.epoch_steps.step_of_epoch(0),
                      .outer_done = engine::find_counter(s.policy->counters(), "outer_steps", 0),
                      .save_every = s.options.save.epochs ? 0 : s.options.save.count});
  if (found.plan && s.compute.cuda())
    found.plan->notes.push_back(
        place_of_averagings(options, s.communicators.device_averaging != nullptr));
  if (found.plan && s.monitors.local_steps) {
    const io::BatchShares& weights = s.monitors.local_steps->weights();
    found.plan->notes.push_back(
        s.options.data.local_steps.automatic
            ? "local steps by measured speed: a slow rank takes fewer of each period"
            : "local steps in proportion " + weights.text() +
                  ": a rank below the mean takes fewer of each period");
  }
  return found;
}

UpdateFacts update_facts(const SessionParts& s) {
  return {.optimizer = s.model->optimizer->spec().name,
          .details = s.model->optimizer->text(),
          .lr = s.schedule.rate.base,
          .lr_arithmetic =
              rate_arithmetic(s.options.update, s.group.world_size(), s.options.data.max_ranks),
          .schedule = s.schedule.rate.schedule};
}

LengthFacts length_facts(const SessionParts& s) {
  using Left = LengthFacts::Left;
  const engine::TrainProgress& progress = s.state.progress;
  const SessionSchedule& schedule = s.schedule;
  const engine::BestModel* best = s.monitors.best.get();
  const bool by_steps = s.options.steps > 0;
  LengthFacts found{
      .total_steps = schedule.total_steps,
      .epochs = run_length(s.options, s.input.data).total_epochs(schedule.epoch_steps.start),
      .by_steps = by_steps,
      .asked = by_steps ? s.options.steps : s.options.epochs,
      .done = by_steps ? progress.global_step : progress.epoch,
      .done_steps = progress.global_step};
  const engine::EpochAverage* const average = s.monitors.epoch_average.get();
  if (average != nullptr && average->is_incomplete(progress)) {
    found.left = Left::kAverage;
  } else if (s.monitors.evaluator &&
             s.state.pending_evaluation != engine::PendingEvaluation::kNone) {
    found.left = Left::kEvaluation;
  } else if (progress.global_step >= schedule.total_steps) {
    found.left = Left::kNothing;
  } else if (best != nullptr && best->should_stop_early()) {
    found.left = Left::kNothingForPatience;
    found.why_stopped = best->why_stopped();
    found.patience = s.options.best.patience;
  }
  return found;
}

// Returns how steps run on a CUDA device: "captured from step 3 on", or why not; "" on the CPU.
std::string capture_text(const SessionParts& s) {
  if (!s.compute.cuda()) return "";
  const int world = s.group.world_size();
  const bool on_host =
      !s.communicators.device && !s.options.averaging.canonical &&
      !encodes_gradients_on_device(s.options.averaging) &&
      sums_gradients_after(s.state.progress.global_step, s.options.averaging, world);
  return on_host ? "not captured: gradients pass through host memory" : s.work->graph_text();
}

// Returns where the training samples are, for steps on a device; "" if the user chose host memory.
std::string placement_text(const SessionParts& s) {
  const OwnMemory& memory = s.model->memory;
  if (memory.resident > 0)
    return base::memory_text(memory.resident) + ", batches are gathered there";
  return memory.in_host_memory.empty() ? "" : "none: " + memory.in_host_memory;
}

}  // namespace

void gather_facts(SessionParts& s, StartFacts start) {
  const int world = s.group.world_size();
  s.facts = {.model = model_facts(s.options, *s.model),
             .data = data_facts(s.input.data, s.input.digest.text, world),
             .batch = batch_facts(s.options.compute, s.input.data, world),
             .ranks = rank_facts(s),
             .averaging = averaging_facts(s),
             .update = update_facts(s),
             .start = std::move(start),
             .length = length_facts(s),
             .seed = s.options.seed,
             .memory = s.model->memory.limit.bytes == 0
                           ? std::nullopt
                           : std::optional(memory_facts(s.setting(), s.model->planned())),
             .capture = capture_text(s)};
  s.facts.data.on_device = placement_text(s);
}

}  // namespace tools
