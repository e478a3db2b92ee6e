// Implements the life cycle of a training: the source of its state, the loop, and the retained
// state.
#include "tools/run/session/train_session.h"

#include "io/interchange/array_files.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/choices/agreement.h"
#include "tools/run/folder/run_reference.h"
#include "tools/run/session/train_session_impl.h"

namespace tools {

TrainSession::TrainSession(const SessionOptions& options, backends::Group& group,
                           std::unique_ptr<backends::Communicator> control, RetainedState* carried)
    : impl_(std::make_unique<Impl>(options, group, std::move(control), carried)) {}
TrainSession::~TrainSession() { impl_->carry(); }

const SessionFacts& TrainSession::start_state() {
  const engine::HostView view(impl_->work->home(), engine::Access::kWrite);
  StartFacts start = impl_->load_or_share_state();
  start.step = impl_->state.progress.global_step;
  impl_->plan_steps();
  impl_->started = true;
  impl_->gather_facts(std::move(start));
  return impl_->facts;
}

namespace {

// Progress counters in the image of a state.
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

// Out of memory, or with a failed device, the rank has no state to continue from, and takes another
// rank's.
void TrainSession::Impl::carry() {
  if (carried == nullptr) return;
  try {
    if (started) {
      carried->image = {.state = keeper.image(state),
                        .whole = state.whole,
                        .apart = state.policy.samples_since_sync()};
      const engine::TrainerParts::Done last =
          trainer ? trainer->done() : done.value_or(engine::TrainerParts::Done{});
      carried->image.state->counters.emplace_back(kEvaluated, last.evaluated);
      carried->image.state->counters.emplace_back(kSaved, last.saved);
    }
  } catch (const std::exception&) {
    carried->image = {};
  }
}

StartFacts TrainSession::Impl::load_or_share_state() {
  using Source = StartFacts::Source;
  const KeepingOptions& keeping = options.keeping;
  take_over();
  if (done) return {.source = Source::kMemory};
  state.model.initialize(model.graph, options.seed);
  if (keeping.resume != "none") resumed_from = keeper.resume(keeping.resume, state);
  // A job may have ended after it wrote a checkpoint and before it named it the best: it would not
  // be named later, and would be pruned.
  if (keeping.resume == "auto" && !resumed_from.empty() && best != nullptr &&
      best->is_best(state.progress.global_step))
    keeper.name_best(state.progress.global_step);
  if (!resumed_from.empty()) return {.source = Source::kSnapshot, .path = resumed_from};
  if (!keeping.init_from.empty())
    return {.source = Source::kWeights, .path = keeping.init_from, .left_out = load_weights()};
  engine::broadcast_state(*control, model.state);
  return {.source = Source::kSeed};
}

std::vector<std::string> TrainSession::Impl::load_weights() {
  const KeepingOptions& keeping = options.keeping;
  std::vector<io::UnreadArray> unread;
  const auto read = [&](const std::string& path) {
    std::vector<io::NamedArray> arrays =
        read_snapshot(path, Snapshot::kBest,
                      [&](const std::string& file) { return io::load_arrays(file, &unread); });
    for (const io::NamedArray& array : arrays) place(array.device);
    return arrays;
  };
  return engine::init_from(
      *control, keeping.init_from, read, exit_code_of, model.state,
      [&keeping](const std::string& name) { return matches_any(keeping.allowed_mismatches, name); },
      unread);
}

engine::Trainer TrainSession::make_trainer(const std::atomic<int>& stop_signal,
                                           RankChanges changes) {
  Impl& s = *impl_;
  if (!s.bound) s.bound.emplace(s.compute.own_cpus());  // all its helper threads have been started
  std::vector<engine::TrainObserver*> observers;
  for (const auto& o : s.observers) observers.push_back(o.get());
  return engine::Trainer(
      {.total_steps = s.total_steps,
       .log_every = s.options.log_every,
       .evaluate = s.options.evaluate,
       .save = s.options.save,
       .clip_grad = s.options.update.clip_grad,
       .losses_per_sample =
           s.options.update.sum_losses ? static_cast<double>(s.data.train().positions()) : 0,
       .has_labels = s.data.train().label_traits().classes,
       .on_nonfinite = s.options.on_nonfinite,
       .supports_rollback = s.carried != nullptr,
       .min_ranks = changes.min_ranks,
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
const SessionFacts& TrainSession::facts() const { return impl_->facts; }
std::string TrainSession::capture_failure() const {
  return impl_->work->capture_failed() ? impl_->work->graph_text() : "";
}
const engine::Graph& TrainSession::graph() const { return impl_->model.graph; }
const SessionData& TrainSession::data() const { return impl_->data; }
std::unique_ptr<ShownSamples> TrainSession::show_samples(std::int64_t count) {
  Impl& s = *impl_;
  const io::Dataset& set = s.data.test();
  if (count <= 0 || set.size() == 0 || set.find<io::ClassLabels>() == nullptr) return nullptr;
  const std::vector<std::int64_t> samples = spread_samples(set, count);
  auto judge =
      std::make_unique<SamplePredictor>(s.model.graph, s.model.state, s.model.pool, s.compute, set,
                                        s.data.normalization(), std::ssize(samples));
  return std::make_unique<ShownSamples>(std::move(judge), set, class_names(s.data.train()),
                                        samples);
}

const std::vector<RunMachine>& TrainSession::machines() const { return impl_->machines; }

std::vector<RankMemory> TrainSession::gather_memory() const {
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
  return ranks;
}

engine::TrainState& TrainSession::state() { return impl_->state; }
engine::CheckpointManager& TrainSession::keeper() { return impl_->keeper; }

}  // namespace tools
