// What a TrainSession says of itself.
#include <algorithm>

#include "engine/core/cuda.h"
#include "io/base/text/text_parts.h"
#include "io/gpu/usable_devices.h"
#include "tools/machine/build_info.h"
#include "tools/machine/device_choice.h"
#include "tools/report/progress_line.h"
#include "tools/session/averaging_choice.h"
#include "tools/session/dry_run.h"
#include "tools/session/train_session_impl.h"

namespace tools {
namespace {

std::string_view to_string(engine::LearningRate::Schedule schedule) {
  using Schedule = engine::LearningRate::Schedule;
  return schedule == Schedule::kCosine  ? "cosine"
         : schedule == Schedule::kStep  ? "step"
         : schedule == Schedule::kRange ? "range"
                                        : "constant";
}

std::string optimizer_text(const engine::Optimizer& optimizer) {
  const std::string text = optimizer.text();
  return text.empty() ? "" : " (" + text + ")";
}

}  // namespace

std::string TrainSession::Impl::batch_shares() const {
  const int world = group.world_size(),
            devices = std::max(1, static_cast<int>(options.compute.device.devices.size()));
  const std::int64_t batch = data.global_batch(), parts = options.compute.micro_batches,
                     pieces = world * parts;
  const auto counted = [](std::int64_t n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s") + " x ";
  };
  if (batch % pieces == 0 && data.sampling().parts % world == 0)
    return counted(world / devices, "rank") + counted(devices, "device") +
           std::to_string(batch / pieces) + " x " + std::to_string(parts);
  std::string line;
  for (int r = 0; r < world; ++r) {
    if (r == 4 && world > 5) return line + " + ...";
    line += (r ? " + " : "") + std::to_string(data.sampler().local_count(0, r));
  }
  return parts == 1 ? line : line + " in " + std::to_string(parts) + " micro-batches";
}

std::string TrainSession::Impl::binding_text() const {
  if (!compute.binding) return "";
  return std::string(" | ") + (group.world_size() == 1 ? "" : "rank 0 ") + "bound to " +
         compute.binding->text();
}

std::string TrainSession::start_line() const {
  const Impl& s = *impl_;
  const int world = s.group.world_size();
  const std::string computes =
      compute_text(s.compute, s.model.pool.physical_threads(),
                   engine::stored_dtype(s.model.graph,
                                        plan_options(s.options, s.compute, s.data, s.model.pool)));
  std::string line = "engine " ENGINE_VERSION ": " + s.options.model.name + " (" +
                     with_commas(s.model.state.parameter_count()) + " parameters, " +
                     std::string(engine::to_string(s.options.compute.dtype)) + ") on " +
                     s.data.train().name + " (" + with_commas(s.data.train().size()) + " train, " +
                     with_commas(s.data.test().size()) + " test) | " + std::to_string(world) +
                     (world == 1 ? " rank x " : " ranks x ") + computes + s.binding_text() +
                     " | backend " + s.group.backend() + " (" + s.group.backend_reason() +
                     ") | sync " + averaging_text(s.options.averaging, s.policy->name());
  if (s.options.averaging.canonical)
    line += " (" + std::to_string(s.options.averaging.shards) + " shards)";
  if (const int layers = s.model.graph.layers_that_use_replicas();
      s.options.model.synchronized_statistics || layers > 0)
    line += " | sync-bn of " + std::to_string(layers) + (layers == 1 ? " layer" : " layers");
  line += " | global batch " + std::to_string(global_batch()) + " = " + s.batch_shares();
  return line + " | " + std::to_string(steps_per_epoch()) +
         (steps_per_epoch() == 1 ? " step an epoch, " : " steps an epoch, ") +
         std::to_string(s.total_steps) + " in all | " +
         std::string(s.model.optimizer->spec().name) + " lr " +
         base::number_text("%g", s.rate.base) +
         rate_arithmetic(s.options.update, s.group.world_size(), s.options.data.most_ranks) + " " +
         std::string(to_string(s.rate.schedule)) + optimizer_text(*s.model.optimizer) + " | seed " +
         std::to_string(s.options.seed);
}

std::string TrainSession::scale_line() const {
  const Impl& s = *impl_;
  if (!s.options.data.batch_scales) return "";
  return "global batch " + std::to_string(global_batch()) + " = " + s.batch_shares() + ", lr " +
         base::number_text("%g", s.rate.base) + " for " + std::to_string(s.group.world_size()) +
         " of " + std::to_string(s.options.data.most_ranks) + " ranks";
}

const std::string& TrainSession::columns_line() const { return impl_->data.splits().columns; }
std::vector<std::string> TrainSession::data_warnings() const {
  const SessionData& data = impl_->data;
  std::vector<std::string> warnings = data.splits().warnings;
  if (data.global_batch() > data.train().size())
    warnings.push_back("a batch of " + std::to_string(data.global_batch()) +
                       " samples is more than the " + std::to_string(data.train().size()) +
                       " training samples: each step takes all of them");
  return warnings;
}

std::string TrainSession::device_notice() const {
  const Compute& compute = impl_->compute;
  return compute.cuda() ? base::cuda::translation_notice(compute.device.index) : "";
}

std::string TrainSession::sampler_line() const {
  const SessionData& data = impl_->data;
  if (!data.partition()) return "";
  const io::PartitionCheck& check = *data.partition();
  const auto samples = [](std::int64_t n) {
    return with_commas(n) + (n == 1 ? " sample" : " samples");
  };
  const int world = impl_->group.world_size();
  std::string text = "each of " + samples(data.train().size()) + " is in the share of " +
                     (check.repeated > 0   ? "one rank at least"
                      : check.left_out > 0 ? "one rank at most"
                                           : "exactly one rank") +
                     " of " + std::to_string(world) + " in each of epochs 1 to " +
                     std::to_string(check.epochs);
  if (check.left_out > 0) text += "; " + samples(check.left_out) + " left out of an epoch";
  if (check.repeated > 0) text += "; " + samples(check.repeated) + " used twice to fill it";
  return text;
}

std::vector<std::string> TrainSession::shard_lines() const {
  const Impl& s = *impl_;
  std::vector<std::string> lines;
  if (s.data.sampling().shard != io::Shard::kFile) return lines;
  const int world = s.group.world_size();
  for (int rank = 0; rank < world; ++rank) {
    const io::FileShard part = io::file_shard(s.data.train().size(), rank, world);
    lines.push_back("shard id: " + std::to_string(rank) + ", world: " + std::to_string(world) +
                    ", start: " + std::to_string(part.start) +
                    ", end: " + std::to_string(part.end));
  }
  return lines;
}

std::vector<std::string> TrainSession::plan_lines() const {
  Impl& s = *impl_;
  return averaging_plan_lines(s.options.averaging, s.group, s.model.state, *s.model.optimizer,
                              {.first = s.state.progress.global_step,
                               .of_epoch = steps_per_epoch(),
                               .total = s.total_steps,
                               .first_of_epochs = s.epoch_steps.step_of_epoch(0)});
}

std::string TrainSession::plan_tables() const {
  const Impl& s = *impl_;
  const MemoryNeed own = memory_need(s.options, s.compute, s.group, s.data, s.model);
  const std::int32_t device = s.compute.cuda() ? s.compute.device.index : -1;
  const auto world = static_cast<std::size_t>(s.group.world_size());
  std::vector<MemoryNeed> needs(world);
  std::vector<std::int32_t> devices(world);
  s.control->all_gather(&own, sizeof own, needs.data());
  s.control->all_gather(&device, sizeof device, devices.data());
  std::vector<RankMemory> ranks;
  for (std::size_t r = 0; r < world; ++r)
    ranks.push_back({s.group.peers().at(r).host,
                     devices[r] < 0 ? "cpu" : "cuda:" + std::to_string(devices[r]), needs[r]});
  return "Model (of one sample; MFLOP: millions of floating-point operations of forward's "
         "products)\n" +
         model_table(s.model.graph) + "\nMemory (MiB)\n" + memory_table(ranks);
}

std::string TrainSession::frozen_line() const {
  const SessionModel& model = impl_->model;
  const engine::ParameterBuffer& parameters = model.state.parameters;
  const auto all = parameters.values.slots();
  const std::size_t trained = parameters.gradients.slots().size();
  if (trained == all.size()) return "";
  std::int64_t values = 0;
  for (const engine::FlatBuffer::Slot& slot : all.subspan(trained)) values += slot.count;
  const auto still = std::ranges::count_if(model.plan.steps, &engine::PlanStep::still);
  std::string line = std::to_string(all.size() - trained) + " of " + std::to_string(all.size()) +
                     " parameters (" + with_commas(values) + " of " +
                     with_commas(model.state.parameter_count()) + " values)";
  if (still > 0)
    line += "; the running statistics of " + std::to_string(still) +
            (still == 1 ? " layer" : " layers") + " stay as they are";
  return line;
}

std::string TrainSession::nothing_left() const {
  const Impl& s = *impl_;
  const engine::TrainProgress& done = s.state.progress;
  if (s.evaluator != nullptr && s.state.evaluation_left != engine::EvaluationLeft::kNone) return "";
  if (done.global_step < s.total_steps && s.best && s.best->out_of_patience())
    return "nothing left to do: stopped early after step " + std::to_string(done.global_step) +
           " (" + s.best->why_stopped() + "); --early-stop " +
           std::to_string(2 * s.options.best.patience) + " goes on";
  if (done.global_step < s.total_steps) return "";
  const bool of_all = s.options.steps == 0;
  const std::int64_t units = of_all ? done.epoch : done.global_step,
                     asked = of_all ? s.options.epochs : s.options.steps;
  const std::string what = of_all ? "epoch" : "step";
  return "nothing left to do: " + what + " " + std::to_string(units) +
         (units == asked ? " of " + std::to_string(asked) + " is done"
                         : " is done, --" + what + "s is " + std::to_string(asked)) +
         "; --" + what + "s " + std::to_string(of_all ? units + 2 : 2 * units) + " goes on";
}

std::string TrainSession::graph_line() const {
  const Impl& s = *impl_;
  const int world = s.group.world_size();
  if (!s.compute.cuda()) return "";
  if (s.wires.device && global_batch() % world != 0)
    return "not captured: the ranks' shares of a batch are unequal";
  const bool on_host = !s.wires.device && sums_gradients_after(s.state.progress.global_step,
                                                               s.options.averaging, world);
  return on_host ? "not captured: gradients pass through host memory" : s.work->graph_text();
}

}  // namespace tools
