// Wiring: the only place that knows all parts of a training.
#include "tools/session/train_session.h"

#include <algorithm>

#include "engine/core/cuda.h"
#include "engine/train/statistics_pass.h"
#include "engine/train/step/loaded_batch.h"
#include "io/base/text_parts.h"
#include "io/gpu/device_memory.h"
#include "io/gpu/usable_devices.h"
#include "io/interchange/array_files.h"
#include "tools/machine/build_info.h"
#include "tools/machine/device_choice.h"
#include "tools/report/console_observer.h"
#include "tools/report/exit_codes.h"
#include "tools/report/progress_line.h"
#include "tools/run/run_reference.h"
#include "tools/session/agreement.h"
#include "tools/session/averaging_choice.h"
#include "tools/session/best_choice.h"
#include "tools/session/dry_run.h"
#include "tools/session/machine_facts.h"
#include "tools/session/sample_statement.h"
#include "tools/session/session_memory.h"
#include "tools/session/session_parts.h"
#include "tools/session/shown_samples.h"

namespace tools {
namespace {

io::LoaderOptions loader_options(const DataOptions& options, const SessionData& data,
                                 engine::Device device) {
  return {.normalization = data.normalization(),
          .workers = options.workers,
          .prefetch = options.prefetch,
          .augmentation = options.augmentation,
          .bytes = engine::sends_bytes(data.train(), device)};
}

std::string digest_of_data(const KeepingOptions& keeping, const SessionData& data) {
  if (!data.digest().empty()) return data.digest();
  const bool wanted = !keeping.directory.empty() || keeping.resume != "none";
  return wanted ? io::data_digest(data.train()) : "";
}

io::Checkpoint description(const SessionOptions& options, const SessionData& data,
                           const std::string& data_digest) {
  io::Checkpoint c;
  c.model = options.model.name;
  c.dataset = options.data.set.name;
  c.config = options.keeping.configuration;
  c.build = std::string(ENGINE_VERSION) + " " + ENGINE_COMMIT;
  c.vocabulary = data.train().vocabulary;
  c.run_id = options.keeping.run_id;
  c.definition = options.model.definition;
  c.data_digest = data_digest;
  c.samples = sample_statement(data.splits(), data.normalization());
  return c;
}

std::string_view to_string(engine::LearningRate::Schedule schedule) {
  using Schedule = engine::LearningRate::Schedule;
  return schedule == Schedule::kCosine  ? "cosine"
         : schedule == Schedule::kStep  ? "step"
         : schedule == Schedule::kRange ? "range"
                                        : "constant";
}

}  // namespace

// Each part needs only those before it.
struct TrainSession::Impl {
  Impl(const SessionOptions& o, backends::Group& g, std::unique_ptr<backends::Communicator> c,
       Carried* kept)
      : options(o),
        group(g),
        carried(kept),
        control(c ? std::move(c) : host_communicator(g)),
        compute(choose_compute(with_place(o.compute), g, *control)),
        processors(instruction_set_notice(g, *control, compute.products)),
        memory(memory_budget(g)),
        data(o.data, o.compute.micro_batches, g, *control, kept == nullptr ? nullptr : kept->data),
        data_digest(digest_of_data(o.keeping, data)),
        own_model(make_model()),
        model(*own_model),
        machines(gather_machines(*control, compute, model.pool.physical_threads())),
        wires(o, compute, g, model.graph),
        work(make_step_work()),
        policy(make_policy(o, g, model, wires)),
        state(make_state()),
        loader(data.train(), data.sampling(), loader_options(o.data, data, compute.device)),
        keeper(*control, keeper_options(), kept == nullptr ? nullptr : writer_of(*kept)),
        evaluator(make_evaluator()),
        desync(make_desync()),
        best(make_best_model(o, g, data)),
        epoch_average(make_epoch_average(
            o, compute, data, model, [this](std::int64_t epoch) { recompute_statistics(epoch); })),
        moving_average(engine::make_weight_average(*model.optimizer, model.state)) {
    if (carried != nullptr) carried->data = data.loaded();
    if (best) state.parts.push_back(best.get());
    if (epoch_average) state.parts.push_back(epoch_average.get());
    plan_steps();
  }

  ComputeOptions with_place(ComputeOptions chosen) const {
    if (carried == nullptr) return chosen;
    carried->place = place_on_host(carried->place, group, *control);
    chosen.device.place = carried->place;
    return chosen;
  }

  // What is left of the run, and with it the learning rate, follows from where the state stands.
  void plan_steps() {
    const engine::RunLength length = run_length(options, data);
    epoch_steps = length.epochs_from(state.progress);
    total_steps = length.total_steps(state.progress);
    rate = learning_rate(options.update, group.world_size(), options.data.most_ranks, length,
                         state.progress);
  }

  // A host may lack the memory that the others have.
  std::shared_ptr<SessionModel> make_model() {
    std::shared_ptr<SessionModel> made;
    if (carried != nullptr && carried->image.state) made = carried->model;
    do_together(group, *control, [&] {
      if (made)
        made->refit(options, compute, group, data, memory);
      else
        made = std::make_shared<SessionModel>(options, compute, group, data, memory);
    });
    if (carried != nullptr) carried->model = made;
    return made;
  }

  std::unique_ptr<engine::StepWork> make_step_work() {
    std::unique_ptr<engine::StepWork> made;
    allocate_on_device(options, compute, group, data, model, [&] {
      made = make_work(options, compute, group, data, model, wires, *control);
    });
    return made;
  }

  engine::TrainState make_state() {
    return {.model = model.state,
            .optimizer = *model.optimizer,
            .policy = *policy,
            .home = work->home(),
            .progress = {},
            .device = compute.device,
            .seed = options.seed,
            .global_batch = data.global_batch(),
            .dataset_size = data.train().size(),
            .buffers = options.buffers,
            .steps_per_epoch = data.sampler().steps_per_epoch(),
            .loss_scale = compute.loss_scale,
            .control = compute.cuda() ? &model.control : nullptr,
            .other_optimizer = options.keeping.other_optimizer,
            .other_batch = options.data.batch_scales,
            .shares = model.shared_update ? &model.shared_update->shares : nullptr};
  }

  static std::shared_ptr<engine::SnapshotWriter> writer_of(Carried& kept) {
    if (!kept.writer) kept.writer = std::make_shared<engine::SnapshotWriter>();
    return kept.writer;
  }

  engine::KeeperOptions keeper_options() {
    return {.directory = options.keeping.directory,
            .keep_last = options.keeping.keep_last,
            .background = options.keeping.background,
            .description = description(options, data, data_digest),
            .exit_code_of = exit_code_of,
            .admit =
                [this](const io::Checkpoint& snapshot, const std::string& path) {
                  if (options.keeping.admit)
                    options.keeping.admit(snapshot, path,
                                          {.digest = data_digest,
                                           .train = data.train().size(),
                                           .test = data.test().size()});
                },
            .before_write = options.keeping.before_write,
            .place = [this](const std::string& saved) { place(saved); },
            .notice = print_notice};
  }

  std::unique_ptr<engine::Evaluator> make_evaluator() {
    if (options.evaluate.count <= 0 || data.test().size() == 0) return nullptr;
    std::unique_ptr<engine::Evaluator> made;
    allocate_on_device(options, compute, group, data, model, [&] {
      const base::cuda::MemoryPurpose purpose("evaluation");
      made = std::make_unique<engine::Evaluator>(
          *control, model.graph, model.state, model.pool, data.test(),
          engine::EvaluatorOptions{.normalization = data.normalization(),
                                   .dtype = compute.storage,
                                   .device = compute.device,
                                   .products = compute.products});
    });
    return made;
  }

  std::unique_ptr<engine::DesyncCheck> make_desync() const {
    if (options.verify_every <= 0 || group.world_size() == 1) return nullptr;
    if (policy->differences().parameters)
      throw io::ConfigError("verify-every compares replicas, but --sync " + options.averaging.name +
                            " never brings them together");
    return std::make_unique<engine::DesyncCheck>(
        *control, state,
        engine::DesyncOptions{.every = options.verify_every,
                              .action = options.on_desync,
                              .remember = !compute.cuda(),  // each digest would fetch the state
                              .equal_statistics = options.model.synchronized_statistics ||
                                                  options.buffers == engine::BufferMode::kEqual});
  }

  void recompute_statistics(std::int64_t epoch) {
    engine::recompute_statistics({.graph = model.graph,
                                  .model = model.state,
                                  .threads = model.pool,
                                  .sampler = data.sampler(),
                                  .loader = loader,
                                  .communicator = *control,
                                  .micro_batches = options.compute.micro_batches,
                                  .products = compute.host_products(),
                                  .seed = options.seed,
                                  .replicas = wires.replicas.get()},
                                 epoch);
  }

  // "4 ranks x 2 devices x 32 x 1" (the last: micro-batches), or each rank's share where they
  // differ.
  std::string batch_shares() const {
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

  // Of rank 0, which says it.
  std::string binding_text() const {
    if (!compute.binding) return "";
    return std::string(" | ") + (group.world_size() == 1 ? "" : "rank 0 ") + "bound to " +
           compute.binding->text();
  }

  // --map-location: a rank has one device, so that is where every array must go. All pass through
  // host memory.
  void place(const std::string& saved) const {
    static_cast<void>(place_array(options.keeping.placement, saved, state.device,
                                  compute.cuda() ? engine::cuda::device_count() : 0));
  }

  std::string load_or_share_state();
  void take_over();
  void carry();

  const SessionOptions options;
  backends::Group& group;
  Carried* const carried;
  const std::unique_ptr<backends::Communicator> control;  // between steps
  const Compute compute;
  const std::string processors;  // what is to be said of them, or ""
  const MemoryBudget memory;     // before the data
  const SessionData data;
  const std::string data_digest;
  const std::shared_ptr<SessionModel> own_model;
  SessionModel& model;
  const std::vector<RunMachine> machines;
  const SessionWires wires;
  const std::unique_ptr<engine::StepWork> work;
  const std::unique_ptr<engine::AveragingPolicy> policy;
  engine::TrainState state;
  io::BatchLoader loader;
  engine::CheckpointKeeper keeper;
  const std::unique_ptr<engine::Evaluator> evaluator;           // null: never evaluates
  const std::unique_ptr<engine::DesyncCheck> desync;            // null: replicas are not compared
  const std::unique_ptr<engine::BestModel> best;                // null: none is sought
  const std::unique_ptr<engine::EpochAverage> epoch_average;    // null: none is kept
  const std::unique_ptr<engine::WeightAverage> moving_average;  // null: none is kept
  std::vector<std::unique_ptr<engine::TrainObserver>> observers;
  std::string resumed_from;
  bool started = false;                            // the state is one to go on from
  std::optional<engine::TrainerParts::Done> done;  // of a state from a rank's memory
  std::unique_ptr<engine::Trainer> trainer;        // that runs, or ran last
  std::optional<base::BoundThread> bound;          // of the thread that trains
  // By plan_steps().
  engine::EpochSteps epoch_steps;
  std::int64_t total_steps = 0;
  engine::LearningRate rate;
};

TrainSession::TrainSession(const SessionOptions& options, backends::Group& group,
                           std::unique_ptr<backends::Communicator> control, Carried* carried)
    : impl_(std::make_unique<Impl>(options, group, std::move(control), carried)) {}
TrainSession::~TrainSession() { impl_->carry(); }

std::string TrainSession::start_state() {
  const engine::HostView view(impl_->work->home(), engine::Access::kWrite);
  std::string source = impl_->load_or_share_state();
  impl_->plan_steps();
  impl_->started = true;
  return source;
}

namespace {

// In the image of a state: what was done of it.
constexpr const char *kEvaluated = "trainer.evaluated", *kSaved = "trainer.saved";

}  // namespace

void TrainSession::Impl::take_over() {
  if (carried == nullptr) return;
  const std::optional<io::Checkpoint> taken = keeper.share(carried->image, state);
  if (!taken) return;
  done = {.evaluated = engine::find_counter(taken->counters, kEvaluated, -1),
          .saved = engine::find_counter(taken->counters, kSaved, -1)};
  carried->image = {};
}

// Out of memory, or with a device that has failed, the rank has nothing to go on from, and takes
// another one's.
void TrainSession::Impl::carry() {
  if (carried == nullptr) return;
  try {
    if (started) {
      carried->image = {.state = keeper.image(state),
                        .whole = state.whole,
                        .apart = state.policy.samples_apart()};
      const engine::TrainerParts::Done last =
          trainer ? trainer->done() : done.value_or(engine::TrainerParts::Done{});
      carried->image.state->counters.emplace_back(kEvaluated, last.evaluated);
      carried->image.state->counters.emplace_back(kSaved, last.saved);
    }
  } catch (const std::exception&) {
    carried->image = {};
  }
}

std::string TrainSession::Impl::load_or_share_state() {
  const KeepingOptions& keeping = options.keeping;
  take_over();
  if (done) return "the state of step " + std::to_string(state.progress.global_step);
  state.model.initialize(model.graph, options.seed);
  if (keeping.resume != "none") resumed_from = keeper.resume(keeping.resume, state);
  // A job that ended between a snapshot and the line that names it the best: nobody would name it
  // later, and it would be pruned.
  if (keeping.resume == "auto" && !resumed_from.empty() && best != nullptr &&
      best->is_best(state.progress.global_step))
    keeper.name_best(state.progress.global_step);
  if (!resumed_from.empty())
    return "resumed " + resumed_from + " at step " + std::to_string(state.progress.global_step);
  if (!keeping.init_from.empty()) {
    const auto read = [this](const std::string& path) {
      std::vector<io::NamedArray> arrays = read_snapshot(
          path, Snapshot::kBest, [](const std::string& file) { return io::load_arrays(file); });
      for (const io::NamedArray& array : arrays) place(array.device);
      return arrays;
    };
    const std::vector<std::string> left_out =
        engine::init_from(*control, keeping.init_from, read, exit_code_of, model.state,
                          [&keeping](const std::string& name) {
                            return matches_any(keeping.allowed_mismatches, name);
                          });
    return "weights from " + keeping.init_from +
           (left_out.empty() ? "" : ", but for " + base::join_text(left_out));
  }
  engine::broadcast_state(*control, model.state);
  return "fresh weights from seed " + std::to_string(options.seed);
}

namespace {

std::string optimizer_text(const engine::Optimizer& optimizer) {
  const std::string text = optimizer.text();
  return text.empty() ? "" : " (" + text + ")";
}

}  // namespace

std::string TrainSession::start_line() const {
  const Impl& s = *impl_;
  const int world = s.group.world_size();
  std::string line = "engine " ENGINE_VERSION ": " + s.options.model.name + " (" +
                     with_commas(s.model.state.parameter_count()) + " parameters, " +
                     std::string(engine::to_string(s.options.compute.dtype)) + ") on " +
                     s.data.train().name + " (" + with_commas(s.data.train().size()) + " train, " +
                     with_commas(s.data.test().size()) + " test) | " + std::to_string(world) +
                     (world == 1 ? " rank x " : " ranks x ") +
                     compute_text(s.compute, s.model.pool.physical_threads()) + s.binding_text() +
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

const std::vector<RunMachine>& TrainSession::machines() const { return impl_->machines; }
const std::string& TrainSession::processors_notice() const { return impl_->processors; }
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

engine::Trainer TrainSession::make_trainer(const std::atomic<int>& stop_signal,
                                           RankChanges changes) {
  Impl& s = *impl_;
  if (!s.bound) s.bound.emplace(s.compute.own_cpus());  // all that helps it has been started
  std::vector<engine::TrainObserver*> observers;
  for (const auto& o : s.observers) observers.push_back(o.get());
  return engine::Trainer(
      {.total_steps = s.total_steps,
       .log_every = s.options.log_every,
       .evaluate = s.options.evaluate,
       .save = s.options.save,
       .clip_grad = s.options.update.clip_grad,
       .losses_of_a_sample =
           s.options.update.sum_losses ? static_cast<double>(s.data.train().positions()) : 0,
       .has_labels = !s.data.train().target,
       .on_nonfinite = s.options.on_nonfinite,
       .steps_back = s.carried != nullptr,
       .least_ranks = changes.least_ranks,
       .leave_signal = changes.leave_signal},
      {.work = *s.work,
       .state = s.state,
       .learning_rate = s.rate,
       .sampler = s.data.sampler(),
       .loader = s.loader,
       .control = *s.control,
       .evaluator = s.evaluator.get(),
       .keeper = s.keeper.enabled() ? &s.keeper : nullptr,
       .desync = s.desync.get(),
       .best = s.best.get(),
       .average = s.epoch_average ? s.epoch_average.get() : s.moving_average.get(),
       .observers = std::move(observers),
       .island = s.wires.island,
       .activity = [&g = s.group](std::string_view a) { g.set_activity(a); },
       .resumed_from = s.resumed_from,
       .done = s.done,
       .pause = std::move(changes.pause),
       .leave = std::move(changes.leave)},
      stop_signal);
}

engine::TrainResult TrainSession::run(const std::atomic<int>& stop_signal, RankChanges changes) {
  impl_->trainer.reset(new engine::Trainer(make_trainer(stop_signal, std::move(changes))));
  return impl_->trainer->run();
}

void TrainSession::add_observer(std::unique_ptr<engine::TrainObserver> observer) {
  impl_->observers.push_back(std::move(observer));
}
std::int64_t TrainSession::global_batch() const { return impl_->data.global_batch(); }
std::int64_t TrainSession::steps_per_epoch() const {
  return impl_->data.sampler().steps_per_epoch();
}
std::int64_t TrainSession::total_steps() const { return impl_->total_steps; }
const SessionData& TrainSession::data() const { return impl_->data; }
std::unique_ptr<ShownSamples> TrainSession::show_samples(std::int64_t count) {
  Impl& s = *impl_;
  const io::Dataset& set = s.data.test();
  if (count <= 0 || set.size() == 0 || set.kind == io::SampleKind::kTokens) return nullptr;
  const std::vector<std::int64_t> samples = spread_samples(set, count);
  auto judge = std::make_unique<SampleJudge>(s.model.graph, s.model.state, s.model.pool, s.compute,
                                             set, s.data.normalization(), std::ssize(samples));
  return std::make_unique<ShownSamples>(std::move(judge), set, class_names(s.data.train()),
                                        samples);
}

const std::string& TrainSession::data_digest() const { return impl_->data_digest; }
std::int64_t TrainSession::epochs() const {
  return run_length(impl_->options, impl_->data).total_epochs(impl_->epoch_steps.start);
}
bool TrainSession::on_device() const { return impl_->compute.cuda(); }
bool TrainSession::carried_over() const { return impl_->done.has_value(); }
bool TrainSession::resumed() const { return !impl_->resumed_from.empty(); }
engine::TrainState& TrainSession::state() { return impl_->state; }
engine::CheckpointKeeper& TrainSession::keeper() { return impl_->keeper; }

}  // namespace tools
