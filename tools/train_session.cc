// Wiring: the only place that knows all parts of a training.
#include "tools/train_session.h"

#include <algorithm>
#include <cmath>

#include "engine/averaging/averaging_policy.h"
#include "engine/kernels/cpu_dispatch.h"
#include "io/checkpoint/device_map.h"
#include "io/interchange/array_files.h"
#include "models/model_catalog.h"
#include "tools/build_info.h"
#include "tools/console_observer.h"
#include "tools/exit_codes.h"
#include "tools/thread_choice.h"

namespace tools {
namespace {

using engine::DType;

DType dtype_of(const io::RunConfig& config) { return config.dtype == "f64" ? DType::kF64 : DType::kF32; }

std::int64_t global_batch_of(const io::RunConfig& config, int world_size) {
  return config.batch_size_per_device > 0 ? config.batch_size_per_device * world_size : config.batch_size;
}

io::SamplerOptions sampler_options(const io::RunConfig& config, const io::Dataset& dataset, const backends::Group& group) {
  const std::int64_t batch = global_batch_of(config, group.world_size());
  if (batch < group.world_size())
    throw io::ConfigError("batch-size " + std::to_string(batch) + " is smaller than the world of " +
                          std::to_string(group.world_size()) + " ranks: every rank needs at least one sample of a batch");
  if (dataset.size() == 0) throw io::DataError("data set '" + dataset.name + "' has no training samples");
  return {.size = dataset.size(),
          .global_batch = batch,
          .rank = group.rank(),
          .world_size = group.world_size(),
          .seed = config.seed,
          .shuffle = config.shuffle};
}

engine::Graph build_graph(const io::RunConfig& config, const io::Dataset& dataset) {
  return models::build_model(
      config.model,
      {.sample_shape = sample_shape(dataset), .classes = dataset.classes, .label_smoothing = config.label_smoothing});
}

std::unique_ptr<engine::Optimizer> make_optimizer(const io::RunConfig& config, const engine::FlatBuffer& values) {
  if (config.optimizer == "adamw")
    return engine::make_adamw({config.adam_beta1, config.adam_beta2, config.adam_eps, config.weight_decay}, values);
  return engine::make_sgd({config.momentum, config.weight_decay, config.nesterov}, values);
}

engine::LearningRate make_learning_rate(const io::RunConfig& config, int world_size, std::int64_t steps_per_epoch,
                                        std::int64_t total_steps) {
  engine::LearningRate rate;
  rate.base = config.lr * (config.lr_scale == "linear" ? world_size : config.lr_scale == "sqrt" ? std::sqrt(world_size) : 1.0);
  using Schedule = engine::LearningRate::Schedule;
  rate.schedule = config.lr_schedule == "cosine" ? Schedule::kCosine
                  : config.lr_schedule == "step" ? Schedule::kStep
                                                 : Schedule::kConstant;
  rate.warmup_steps = config.lr_warmup_steps;
  rate.gamma = config.lr_gamma;
  rate.minimum = config.lr_min;
  rate.total_steps = total_steps;
  for (const std::int64_t epoch : config.lr_step_epochs) rate.milestones.push_back(epoch * steps_per_epoch);
  return rate;
}

engine::BufferMode buffer_mode(const io::RunConfig& config) {
  return config.buffers == "rank0"     ? engine::BufferMode::kRank0
         : config.buffers == "average" ? engine::BufferMode::kAverage
                                       : engine::BufferMode::kLocal;
}

engine::Every every(const io::Interval& interval) { return {interval.every, interval.epochs}; }

}  // namespace

struct TrainSession::Impl {
  Impl(const io::RunConfig& c, backends::Group& g)
      : config(c),
        device_map(io::DeviceMap::parse(c.map_location)),
        group(g),
        control(g.make_communicator()),
        wire(g.make_communicator()),
        data(io::load_dataset(dataset_options(c))),
        pool(c.threads > 0 ? c.threads : default_threads(g)),
        graph(build_graph(c, data.train)),
        model(engine::ModelState::allocate(graph, dtype_of(c))),
        sampler(sampler_options(c, data.train, g)),
        total_steps(c.steps > 0 ? c.steps : c.epochs * sampler.steps_per_epoch()),
        plan(engine::Plan::compile(graph,
                                   {.max_batch = sampler.max_local_count(), .dtype = dtype_of(c), .threads = pool.threads()})),
        executor(plan, model, pool, c.seed),
        optimizer(make_optimizer(c, model.parameters.values)),
        context{.device = {}, .threads = &pool, .scratch = {}},
        policy(make_policy()),
        rate(make_learning_rate(c, g.world_size(), sampler.steps_per_epoch(), total_steps)),
        state{model, *optimizer, *policy, {}, {}, c.seed, global_batch_of(c, g.world_size()), data.train.size(), buffer_mode(c)},
        loader(data.train, sampler_options(c, data.train, g),
               {.normalization = normalization(c, data.train), .workers = c.workers, .prefetch = c.prefetch}),
        keeper(*control, {.directory = c.save_dir,
                          .keep_last = c.keep_last,
                          .background = c.save_async,
                          .description = describe(),
                          .exit_code_of = exit_code_of,
                          .place = [this](const std::string& saved) { place(saved); },
                          .notice = print_notice}) {
    model.initialize(graph, c.seed);
    if (c.eval_every.every > 0 && data.test.size() > 0)
      evaluator = std::make_unique<engine::Evaluator>(
          *control, graph, model, pool, data.test,
          engine::EvaluatorOptions{.batch = std::max<std::int64_t>(64, sampler.max_local_count()),
                                   .normalization = normalization(c, data.train),
                                   .dtype = dtype_of(c)});
  }

  std::unique_ptr<engine::AveragingPolicy> make_policy() {
    if (group.world_size() == 1 || config.sync == "none") return engine::make_no_averaging(group.world_size());
    if (config.sync == "params")
      return engine::make_parameter_averaging(*wire, model.parameters, context, {config.sync_every, config.sync_warmup});
    return engine::make_gradient_averaging(
        *wire, model.parameters,
        {.bucket_bytes = static_cast<std::int64_t>(config.bucket_cap_mb * (1 << 20)), .overlap = !config.delay_allreduce});
  }

  // --map-location: this build computes on the CPU, so that is where every array must go.
  void place(const std::string& saved) const {
    const std::string own = engine::to_string(state.device), target = device_map.target(saved, own);
    if (engine::parse_device(target).kind != state.device.kind)
      throw io::ConfigError("map-location sends arrays saved on " + saved + " to " + target + ", but this rank computes on " +
                            own);
  }

  io::Checkpoint describe() const {
    io::Checkpoint c;
    c.model = config.model;
    c.dataset = config.dataset;
    c.config = io::to_toml(config.origin);
    c.build = std::string(ENGINE_VERSION) + " " + ENGINE_COMMIT;
    c.vocabulary = data.train.vocabulary;
    return c;
  }

  const io::RunConfig config;
  const io::DeviceMap device_map;
  backends::Group& group;
  std::unique_ptr<backends::Communicator> control, wire;  // between steps; for the policy alone
  io::DatasetSplits data;
  engine::ThreadPool pool;
  engine::Graph graph;
  engine::ModelState model;
  io::Sampler sampler;
  std::int64_t total_steps;
  engine::Plan plan;
  engine::Executor executor;
  std::unique_ptr<engine::Optimizer> optimizer;
  engine::KernelContext context;
  std::unique_ptr<engine::AveragingPolicy> policy;
  engine::LearningRate rate;
  engine::TrainState state;
  io::BatchLoader loader;
  engine::CheckpointKeeper keeper;
  std::unique_ptr<engine::Evaluator> evaluator;
  std::vector<std::unique_ptr<engine::TrainObserver>> observers;
  std::string resumed_from;
};

TrainSession::TrainSession(const io::RunConfig& config, backends::Group& group) : impl_(std::make_unique<Impl>(config, group)) {}
TrainSession::~TrainSession() = default;

std::string TrainSession::start_state() {
  Impl& s = *impl_;
  if (s.config.resume != "none") s.resumed_from = s.keeper.resume(s.config.resume, s.state);
  if (!s.resumed_from.empty()) return "resumed " + s.resumed_from + " at step " + std::to_string(s.state.progress.global_step);
  if (!s.config.init_from.empty()) {
    const auto read = [&s](const std::string& path) {
      std::vector<io::NamedArray> arrays = io::load_arrays(path);
      for (const io::NamedArray& array : arrays) s.place(array.device);
      return arrays;
    };
    engine::init_from(*s.control, s.config.init_from, read, exit_code_of, s.model);
    return "weights from " + s.config.init_from;
  }
  engine::broadcast_state(*s.control, s.model);
  return "fresh weights from seed " + std::to_string(s.config.seed);
}

std::string TrainSession::start_line() const {
  const Impl& s = *impl_;
  const int world = s.group.world_size();
  std::string line = "engine " ENGINE_VERSION ": " + s.config.model + " (" + with_commas(s.model.parameter_count()) +
                     " parameters, " + s.config.dtype + ") on " + s.data.train.name + " (" + with_commas(s.data.train.size()) +
                     " train, " + with_commas(s.data.test.size()) + " test) | " + std::to_string(world) +
                     (world == 1 ? " rank x " : " ranks x ") + std::to_string(s.pool.threads()) +
                     (s.pool.threads() == 1 ? " thread" : " threads") + " on cpu (" +
                     std::string(engine::kernels::to_string(engine::kernels::cpu_isa())) + ") | backend " + s.group.backend() +
                     " (" + s.group.backend_reason() + ") | sync " + std::string(s.policy->name());
  if (s.policy->name() == "params") line += " every " + std::to_string(s.config.sync_every);
  if (s.policy->name() == "grad") line += s.config.delay_allreduce ? " delayed" : " overlapped";
  line += " | global batch " + std::to_string(global_batch()) + " = ";
  for (int r = 0; r < world; ++r) {
    if (r == 4 && world > 5) {
      line += " + ...";
      break;
    }
    io::SamplerOptions share = sampler_options(s.config, s.data.train, s.group);
    share.rank = r;
    line += (r ? " + " : "") + std::to_string(io::Sampler(share).local_count(0));
  }
  char rates[64];
  std::snprintf(rates, sizeof rates, "%g", s.rate.base);
  return line + " | " + std::to_string(s.sampler.steps_per_epoch()) + " steps an epoch, " + std::to_string(s.total_steps) +
         " in all | " + s.config.optimizer + " lr " + rates + " " + s.config.lr_schedule + " | seed " +
         std::to_string(s.config.seed);
}

engine::Trainer TrainSession::make_trainer(const std::atomic<int>& stop_signal) {
  Impl& s = *impl_;
  std::vector<engine::TrainObserver*> observers;
  for (const auto& o : s.observers) observers.push_back(o.get());
  return engine::Trainer({.total_steps = s.total_steps,
                          .log_every = s.config.log_every,
                          .evaluate = every(s.config.eval_every),
                          .save = every(s.config.save_every),
                          .clip_grad = s.config.clip_grad},
                         {.executor = s.executor,
                          .state = s.state,
                          .learning_rate = s.rate,
                          .sampler = s.sampler,
                          .loader = s.loader,
                          .context = s.context,
                          .control = *s.control,
                          .evaluator = s.evaluator.get(),
                          .keeper = s.keeper.enabled() ? &s.keeper : nullptr,
                          .observers = std::move(observers),
                          .activity = [&g = s.group](std::string_view a) { g.set_activity(a); }},
                         stop_signal);
}

engine::TrainResult TrainSession::run(const std::atomic<int>& stop_signal) { return make_trainer(stop_signal).run(); }

void TrainSession::add_observer(std::unique_ptr<engine::TrainObserver> observer) {
  impl_->observers.push_back(std::move(observer));
}
std::int64_t TrainSession::global_batch() const { return impl_->state.global_batch; }
std::int64_t TrainSession::steps_per_epoch() const { return impl_->sampler.steps_per_epoch(); }
std::int64_t TrainSession::total_steps() const { return impl_->total_steps; }
bool TrainSession::resumed() const { return !impl_->resumed_from.empty(); }
engine::TrainState& TrainSession::state() { return impl_->state; }
engine::CheckpointKeeper& TrainSession::keeper() { return impl_->keeper; }

io::DatasetOptions dataset_options(const io::RunConfig& config) {
  return {.name = config.dataset,
          .directory = config.data_dir.empty() ? "data/" + config.dataset : config.data_dir,
          .seed = config.seed,
          .limit = config.limit,
          .synthetic_shape = config.synthetic_shape,
          .synthetic_size = config.synthetic_size,
          .synthetic_classes = config.synthetic_classes,
          .context = config.context,
          .text_stride = config.text_stride,
          .vocabulary_size = config.vocabulary_size,
          .annotations = config.annotations,
          .label_column = config.label_column,
          .csv_header = config.csv_header,
          .test_share = config.test_share};
}

engine::Shape sample_shape(const io::Dataset& dataset) {
  if (dataset.kind == io::SampleKind::kTokens) return {dataset.shape[0]};
  return {dataset.shape[0], dataset.shape[1], dataset.shape[2]};
}

io::Normalization normalization(const io::RunConfig& config, const io::Dataset& dataset) {
  if (config.normalize == "unit") return io::Normalization::kUnit;
  if (config.normalize == "standard") return io::Normalization::kStandard;
  return dataset.shape[2] == 1 ? io::Normalization::kUnit : io::Normalization::kStandard;
}

}  // namespace tools
