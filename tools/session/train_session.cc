// Wiring: the only place that knows all parts of a training.
#include "tools/session/train_session.h"

#include <algorithm>

#include "engine/core/cuda.h"
#include "engine/train/step/loaded_batch.h"
#include "io/base/text_parts.h"
#include "io/interchange/array_files.h"
#include "tools/machine/build_info.h"
#include "tools/machine/device_choice.h"
#include "tools/report/console_observer.h"
#include "tools/report/exit_codes.h"
#include "tools/session/averaging_choice.h"
#include "tools/session/session_parts.h"

namespace tools {
namespace {

std::int64_t total_steps_of(const SessionOptions& options, const SessionData& data) {
  return options.steps > 0 ? options.steps : options.epochs * data.sampler().steps_per_epoch();
}

io::LoaderOptions loader_options(const DataOptions& options, const SessionData& data,
                                 engine::Device device) {
  return {.normalization = data.normalization(),
          .workers = options.workers,
          .prefetch = options.prefetch,
          .augmentation = options.augmentation,
          .bytes = engine::sends_bytes(data.train(), device)};
}

io::Checkpoint description(const SessionOptions& options, const SessionData& data) {
  io::Checkpoint c;
  c.model = options.model.name;
  c.dataset = options.data.set.name;
  c.config = options.keeping.configuration;
  c.build = std::string(ENGINE_VERSION) + " " + ENGINE_COMMIT;
  c.vocabulary = data.train().vocabulary;
  return c;
}

std::string_view to_string(engine::LearningRate::Schedule schedule) {
  using Schedule = engine::LearningRate::Schedule;
  return schedule == Schedule::kCosine ? "cosine"
         : schedule == Schedule::kStep ? "step"
                                       : "constant";
}

}  // namespace

// Each part needs only those before it.
struct TrainSession::Impl {
  Impl(const SessionOptions& o, backends::Group& g)
      : options(o),
        group(g),
        control(host_communicator(g)),
        compute(choose_compute(o.compute, g, *control)),
        data(o.data, o.compute.micro_batches, g, *control),
        model(o, compute, g, data),
        wires(o, compute, g, model.graph),
        work(make_work(o, compute, g, data, model, wires, *control)),
        policy(make_policy(o, g, model, wires)),
        total_steps(total_steps_of(o, data)),
        rate(
            learning_rate(o.update, g.world_size(), data.sampler().steps_per_epoch(), total_steps)),
        state(make_state()),
        loader(data.train(), data.sampling(), loader_options(o.data, data, compute.device)),
        keeper(*control, keeper_options()),
        evaluator(make_evaluator()),
        desync(make_desync()) {}

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
            .control = compute.cuda() ? &model.control : nullptr};
  }

  engine::KeeperOptions keeper_options() {
    return {.directory = options.keeping.directory,
            .keep_last = options.keeping.keep_last,
            .background = options.keeping.background,
            .description = description(options, data),
            .exit_code_of = exit_code_of,
            .place = [this](const std::string& saved) { place(saved); },
            .notice = print_notice};
  }

  std::unique_ptr<engine::Evaluator> make_evaluator() {
    if (options.evaluate.count <= 0 || data.test().size() == 0) return nullptr;
    return std::make_unique<engine::Evaluator>(
        *control, model.graph, model.state, model.pool, data.test(),
        engine::EvaluatorOptions{.normalization = data.normalization(),
                                 .dtype = compute.storage,
                                 .device = compute.device,
                                 .products = compute.products});
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
                              .equal_statistics = options.model.synchronized_statistics});
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
    if (batch % pieces == 0)
      return counted(world / devices, "rank") + counted(devices, "device") +
             std::to_string(batch / pieces) + " x " + std::to_string(parts);
    std::string line;
    for (int r = 0; r < world; ++r) {
      if (r == 4 && world > 5) return line + " + ...";
      line += (r ? " + " : "") + std::to_string(data.sampler().local_count(0, r));
    }
    return parts == 1 ? line : line + " in " + std::to_string(parts) + " micro-batches";
  }

  // --map-location: a rank has one device, so that is where every array must go. All pass through
  // host memory.
  void place(const std::string& saved) const {
    static_cast<void>(place_array(options.keeping.placement, saved, state.device,
                                  compute.cuda() ? engine::cuda::device_count() : 0));
  }

  std::string load_or_share_state();

  const SessionOptions options;
  backends::Group& group;
  const std::unique_ptr<backends::Communicator> control;  // between steps
  const Compute compute;
  const SessionData data;
  SessionModel model;
  const SessionWires wires;
  const std::unique_ptr<engine::StepWork> work;
  const std::unique_ptr<engine::AveragingPolicy> policy;
  const std::int64_t total_steps;
  const engine::LearningRate rate;
  engine::TrainState state;
  io::BatchLoader loader;
  engine::CheckpointKeeper keeper;
  const std::unique_ptr<engine::Evaluator> evaluator;  // null: never evaluates
  const std::unique_ptr<engine::DesyncCheck> desync;   // null: replicas are not compared
  std::vector<std::unique_ptr<engine::TrainObserver>> observers;
  std::string resumed_from;
};

TrainSession::TrainSession(const SessionOptions& options, backends::Group& group)
    : impl_(std::make_unique<Impl>(options, group)) {}
TrainSession::~TrainSession() = default;

std::string TrainSession::start_state() {
  const engine::HostView view(impl_->work->home(), engine::Access::kWrite);
  return impl_->load_or_share_state();
}

std::string TrainSession::Impl::load_or_share_state() {
  const KeepingOptions& keeping = options.keeping;
  if (keeping.resume != "none") resumed_from = keeper.resume(keeping.resume, state);
  if (!resumed_from.empty())
    return "resumed " + resumed_from + " at step " + std::to_string(state.progress.global_step);
  if (!keeping.init_from.empty()) {
    const auto read = [this](const std::string& path) {
      std::vector<io::NamedArray> arrays = io::load_arrays(path);
      for (const io::NamedArray& array : arrays) place(array.device);
      return arrays;
    };
    engine::init_from(*control, keeping.init_from, read, exit_code_of, model.state);
    return "weights from " + keeping.init_from;
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
                     compute_text(s.compute, s.model.pool.physical_threads()) + " | backend " +
                     s.group.backend() + " (" + s.group.backend_reason() + ") | sync " +
                     averaging_text(s.options.averaging, s.policy->name());
  if (s.options.averaging.canonical)
    line += " (" + std::to_string(s.options.averaging.shards) + " shards)";
  if (const int layers = s.model.graph.layers_that_use_replicas();
      s.options.model.synchronized_statistics || layers > 0)
    line += " | sync-bn of " + std::to_string(layers) + (layers == 1 ? " layer" : " layers");
  line += " | global batch " + std::to_string(global_batch()) + " = " + s.batch_shares();
  return line + " | " + std::to_string(steps_per_epoch()) + " steps an epoch, " +
         std::to_string(s.total_steps) + " in all | " +
         std::string(s.model.optimizer->spec().name) + " lr " +
         base::number_text("%g", s.rate.base) + " " + std::string(to_string(s.rate.schedule)) +
         optimizer_text(*s.model.optimizer) + " | seed " + std::to_string(s.options.seed);
}

std::string TrainSession::shard_line() const {
  const Impl& s = *impl_;
  if (s.data.sampling().shard != io::Shard::kFile) return "";
  const int rank = s.group.rank(), world = s.group.world_size();
  const io::FileShard part = io::file_shard(s.data.train().size(), rank, world);
  return "shard id: " + std::to_string(rank) + ", world: " + std::to_string(world) +
         ", start: " + std::to_string(part.start) + ", end: " + std::to_string(part.end);
}

std::vector<std::string> TrainSession::plan_lines() const {
  Impl& s = *impl_;
  return averaging_plan_lines(s.options.averaging, s.group, s.model.state, *s.model.optimizer,
                              {.first = s.state.progress.global_step,
                               .of_epoch = steps_per_epoch(),
                               .total = s.total_steps});
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

engine::Trainer TrainSession::make_trainer(const std::atomic<int>& stop_signal) {
  Impl& s = *impl_;
  std::vector<engine::TrainObserver*> observers;
  for (const auto& o : s.observers) observers.push_back(o.get());
  return engine::Trainer(
      {.total_steps = s.total_steps,
       .log_every = s.options.log_every,
       .evaluate = s.options.evaluate,
       .save = s.options.save,
       .clip_grad = s.options.update.clip_grad,
       .losses_of_a_sample =
           s.options.update.sum_losses ? static_cast<double>(s.data.train().positions()) : 0},
      {.work = *s.work,
       .state = s.state,
       .learning_rate = s.rate,
       .sampler = s.data.sampler(),
       .loader = s.loader,
       .control = *s.control,
       .evaluator = s.evaluator.get(),
       .keeper = s.keeper.enabled() ? &s.keeper : nullptr,
       .desync = s.desync.get(),
       .observers = std::move(observers),
       .island = s.wires.island,
       .activity = [&g = s.group](std::string_view a) { g.set_activity(a); }},
      stop_signal);
}

engine::TrainResult TrainSession::run(const std::atomic<int>& stop_signal) {
  return make_trainer(stop_signal).run();
}

void TrainSession::add_observer(std::unique_ptr<engine::TrainObserver> observer) {
  impl_->observers.push_back(std::move(observer));
}
std::int64_t TrainSession::global_batch() const { return impl_->data.global_batch(); }
std::int64_t TrainSession::steps_per_epoch() const {
  return impl_->data.sampler().steps_per_epoch();
}
std::int64_t TrainSession::total_steps() const { return impl_->total_steps; }
const io::Dataset& TrainSession::training_data() const { return impl_->data.train(); }
bool TrainSession::on_device() const { return impl_->compute.cuda(); }
bool TrainSession::resumed() const { return !impl_->resumed_from.empty(); }
engine::TrainState& TrainSession::state() { return impl_->state; }
engine::CheckpointKeeper& TrainSession::keeper() { return impl_->keeper; }

}  // namespace tools
