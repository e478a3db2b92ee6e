// Implements the life cycle of a training: the source of its state, the loop, and the retained
// state.
#include "tools/run/session/train_session.h"

#include "engine/train/saving/weights.h"
#include "io/interchange/array_files.h"
#include "models/model_catalog.h"
#include "tools/folder/run_reference.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/choices/agreement.h"
#include "tools/run/data/foreign_layout.h"
#include "tools/run/data/saved_weights.h"
#include "tools/run/session/session_parts.h"

namespace tools {

namespace {

// Progress counters of a state in memory.
constexpr const char *kEvaluated = "trainer.evaluated", *kSaved = "trainer.saved";

void take_over(SessionParts& s) {
  if (s.retained == nullptr) return;
  const std::optional<io::Checkpoint> taken = s.checkpoints.share(s.retained->state, s.state);
  if (!taken) return;
  s.start.done = {.evaluated = engine::find_counter(taken->counters, kEvaluated, -1),
                  .saved = engine::find_counter(taken->counters, kSaved, -1)};
  s.retained->state = {};
}

// Out of memory, or with a device that has failed, the rank has no state to continue from, and
// takes another one's.
void retain(SessionParts& s) {
  if (s.retained == nullptr) return;
  engine::StateInMemory& kept = s.retained->state;
  try {
    if (s.start.is_made) {
      kept = {.checkpoint = s.checkpoints.checkpoint_in_memory(s.state),
              .whole = s.state.whole,
              .apart = s.state.policy.samples_since_sync()};
      const engine::TrainerParts::Done last =
          s.training.trainer ? s.training.trainer->done()
                             : s.start.done.value_or(engine::TrainerParts::Done{});
      kept.checkpoint->counters.emplace_back(kEvaluated, last.evaluated);
      kept.checkpoint->counters.emplace_back(kSaved, last.saved);
    }
  } catch (const std::exception&) {
    kept = {};
  }
}

// Returns what was left out.
std::vector<std::string> load_weights(SessionParts& s) {
  const KeepingOptions& keeping = s.options.keeping;
  std::vector<io::UnreadArray> unread;
  const auto optional = [&keeping](const std::string& name) {
    return matches_any(keeping.allowed_mismatches, name);
  };
  const auto load = [&](const std::string& file) {
    std::vector<io::NamedArray> arrays = io::load_arrays(file, &unread);
    from_foreign_layout({s.options.model.name, s.options.model.definition}, file, arrays);
    return arrays;
  };
  const auto read = [&](const std::string& path) {
    std::vector<io::NamedArray> arrays = read_checkpoint(path, CheckpointChoice::kBest, load);
    refuse_transposed_gpt2(arrays, path);
    refuse_separate_queries(arrays, path, s.model->state, optional);
    for (const io::NamedArray& array : arrays) place_saved(s, array.device);
    return arrays;
  };
  return engine::init_from(*s.control, keeping.init_from, read, exit_code_of, s.model->state,
                           optional, unread);
}

// Loads the values that the model's own file has. The last layer keeps fresh weights if the data
// have other classes than the file; it may be the only one.
std::vector<std::string> load_model_weights(SessionParts& s) {
  std::vector<std::string> left_out;
  const auto load = [&] {
    const std::string& name = s.options.model.name;
    const models::ModelWeights weights = models::model_weights(name);
    left_out = engine::import_state(
        weights.arrays, name, /*exact=*/false, s.model->state,
        [&](const std::string& array) { return weights.may_differ(array); }, {},
        /*may_take_none=*/true);
  };
  engine::run_on_root(*s.control, load, exit_code_of);
  engine::broadcast_state(*s.control, s.model->state);
  return left_out;
}

StartFacts load_or_share_state(SessionParts& s) {
  using Source = StartFacts::Source;
  const KeepingOptions& keeping = s.options.keeping;
  take_over(s);
  if (s.start.done) return {.source = Source::kMemory};
  engine::ModelState& model = s.state.model;
  std::string& resumed_from = s.start.resumed_from;
  model.initialize(s.model->graph, s.options.seed, engine::ModelState::nothing);
  if (keeping.resume.is_wanted())
    resumed_from = s.checkpoints.resume(keeping.resume.text(), s.state);
  // A job may have ended between a checkpoint and the line that names it the best: without a name
  // it would be pruned.
  const std::int64_t step = s.state.progress.global_step;
  if (keeping.resume.is_automatic() && !resumed_from.empty() && s.monitors.best != nullptr &&
      s.monitors.best->is_best(step))
    s.checkpoints.name_best(step);
  if (!resumed_from.empty()) return {.source = Source::kCheckpoint, .path = resumed_from};
  const bool reads = !keeping.init_from.empty() || models::is_published_model(s.options.model.name);
  model.initialize(s.model->graph, s.options.seed, [&](const std::string& parameter) {
    return !reads || matches_any(keeping.allowed_mismatches, parameter);
  });
  if (!keeping.init_from.empty())
    return {.source = Source::kWeights, .path = keeping.init_from, .left_out = load_weights(s)};
  if (models::has_weights(s.options.model.name))
    return {.source = Source::kWeights,
            .path = s.options.model.name,
            .left_out = load_model_weights(s)};
  engine::broadcast_state(*s.control, s.model->state);
  return {.source = Source::kSeed};
}

}  // namespace

TrainSession::TrainSession(const SessionOptions& options, backends::Group& group,
                           std::unique_ptr<backends::Communicator> control, RetainedState* retained)
    : parts_(std::make_unique<SessionParts>(options, group, std::move(control), retained)) {}
TrainSession::~TrainSession() { retain(*parts_); }

const SessionFacts& TrainSession::start_state() {
  SessionParts& s = *parts_;
  const engine::HostView view(s.work->home(), engine::Access::kWrite);
  StartFacts start = load_or_share_state(s);
  start.step = s.state.progress.global_step;
  plan_steps(s);
  s.start.is_made = true;
  gather_facts(s, std::move(start));
  return s.facts;
}

namespace {

// Throws io::ConfigError for a division of steps in which a rank does not know the samples of all.
std::vector<double> checked_loss_weights(const SessionParts& s) {
  std::vector<double> weights = s.input.data.train().loss_weights();
  if (s.input.data.sampling().shard != io::Shard::kContiguous && s.group.world_size() > 1 &&
      !engine::are_equal(weights))
    throw io::ConfigError(
        "--shard " +
        std::string(s.input.data.sampling().shard == io::Shard::kFile ? "file" : "strided") +
        " for losses with unequal weights, of which every rank must know the sum over all ranks; "
        "expected --shard contiguous");
  return weights;
}

}  // namespace

engine::Trainer TrainSession::make_trainer(const std::atomic<int>& stop_signal,
                                           RankChanges changes) {
  SessionParts& s = *parts_;
  if (!s.training.bound)
    s.training.bound.emplace(s.compute.own_cpus());  // all that helps it has been started
  std::vector<engine::TrainObserver*> observers;
  for (const auto& o : s.training.observers) observers.push_back(o.get());
  return engine::Trainer(
      {.total_steps = s.schedule.total_steps,
       .log_every = s.options.log_every,
       .evaluate = s.options.evaluate,
       .save = s.options.save,
       .clip_grad = s.options.update.clip_grad,
       .losses_per_sample =
           s.options.update.sum_losses ? static_cast<double>(s.input.data.train().positions()) : 0,
       .loss_weights = checked_loss_weights(s),
       .positions = s.input.data.train().positions(),
       .has_labels = s.input.data.train().label_traits().classes,
       .on_nonfinite = s.options.on_nonfinite,
       .supports_rollback = s.retained != nullptr,
       .min_ranks = changes.min_ranks,
       .leave_signal = changes.leave_signal},
      {.work = *s.work,
       .state = s.state,
       .learning_rate = s.schedule.rate,
       .sampler = s.input.data.sampler(),
       .loader = s.loader,
       .control = *s.control,
       .evaluator = s.monitors.evaluator.get(),
       .checkpoints = s.checkpoints.enabled() ? &s.checkpoints : nullptr,
       .desync = s.monitors.desync.get(),
       .best = s.monitors.best.get(),
       .average = s.monitors.epoch_average ? s.monitors.epoch_average.get()
                                           : s.monitors.moving_average.get(),
       .balance = s.monitors.balance.get(),
       .local_steps = s.monitors.local_steps.get(),
       .observers = std::move(observers),
       .island = s.communicators.island,
       .activity = [&g = s.group](std::string_view a) { g.set_activity(a); },
       .resumed_from = s.start.resumed_from,
       .done = s.start.done,
       .pause = std::move(changes.pause),
       .leave = std::move(changes.leave)},
      stop_signal);
}

engine::TrainResult TrainSession::run(const std::atomic<int>& stop_signal, RankChanges changes) {
  parts_->training.trainer.reset(
      new engine::Trainer(make_trainer(stop_signal, std::move(changes))));
  try {
    return parts_->training.trainer->run();
  } catch (...) {
    if (backends::DeviceCommunicator* communicator = parts_->communicators.device_averaging) {
      communicator->abort("this rank has failed");
      const engine::HomeMemory memory = parts_->policy->memory_at_home();
      if (memory.cancel) memory.cancel();  // a communicator has one caller at a time
    }
    for (backends::DeviceCommunicator* communicator :
         {parts_->communicators.device, parts_->communicators.device_averaging,
          parts_->communicators.device_statistics})
      if (communicator != nullptr) backends::cancel(*communicator);
    for (const auto& communicator : parts_->communicators.device_pairs)
      if (communicator != nullptr) backends::cancel(*communicator);
    throw;
  }
}

void TrainSession::add_observer(std::unique_ptr<engine::TrainObserver> observer) {
  parts_->training.observers.push_back(std::move(observer));
}
const SessionFacts& TrainSession::facts() const { return parts_->facts; }
std::string TrainSession::capture_failure() const {
  return parts_->work->capture_failed() ? parts_->work->graph_text() : "";
}
const engine::Graph& TrainSession::graph() const { return parts_->model->graph; }
const SessionData& TrainSession::data() const { return parts_->input.data; }
std::unique_ptr<ShownSamples> TrainSession::show_samples(std::int64_t count) {
  SessionParts& s = *parts_;
  const io::Dataset& set = s.input.data.test();
  if (count <= 0 || set.size() == 0 || set.find<io::ClassLabels>() == nullptr) return nullptr;
  const std::vector<std::int64_t> samples = spread_samples(set, count);
  auto predictor =
      std::make_unique<SamplePredictor>(s.model->graph, s.model->state, s.model->pool, s.compute,
                                        set, s.input.data.normalization(), std::ssize(samples));
  return std::make_unique<ShownSamples>(std::move(predictor), set,
                                        class_names(s.input.data.train()), samples);
}

const std::vector<RunMachine>& TrainSession::machines() const { return parts_->machines; }

std::vector<RankMemory> TrainSession::gather_memory() const {
  const SessionParts& s = *parts_;
  const MemoryNeed own = memory_need(s.setting(), s.model->planned());
  const std::int32_t device = s.compute.cuda() ? s.compute.device.index : -1;
  const auto world = static_cast<std::size_t>(s.group.world_size());
  const MemoryFacts limited = s.facts.memory.value_or(MemoryFacts{});
  std::vector<MemoryNeed> needs(world);
  std::vector<MemoryFacts> all_limited(world);
  std::vector<std::int32_t> devices(world);
  std::vector<std::uint64_t> in_use(world);
  s.control->all_gather(&own, sizeof own, needs.data());
  s.control->all_gather(&device, sizeof device, devices.data());
  s.control->all_gather(&limited, sizeof limited, all_limited.data());
  s.control->all_gather(&s.model->memory.in_use, sizeof in_use.front(), in_use.data());
  std::vector<RankMemory> ranks;
  for (std::size_t r = 0; r < world; ++r)
    ranks.push_back({s.group.peers().at(r).host,
                     devices[r] < 0 ? "cpu" : "cuda:" + std::to_string(devices[r]), needs[r],
                     all_limited[r], in_use[r]});
  return ranks;
}

engine::TrainState& TrainSession::state() { return parts_->state; }
engine::CheckpointManager& TrainSession::checkpoints() { return parts_->checkpoints; }

}  // namespace tools
