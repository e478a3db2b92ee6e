// Wiring: the only place that knows all parts of a training.
#include "tools/session/train_session.h"

#include <algorithm>

#include "engine/averaging/sums/replica_statistics.h"
#include "engine/core/cuda.h"
#include "engine/optim/loss_scale.h"
#include "engine/train/work/device_averaging.h"
#include "engine/train/work/loaded_batch.h"
#include "io/checkpoint/device_map.h"
#include "io/interchange/array_files.h"
#include "tools/machine/build_info.h"
#include "tools/machine/device_choice.h"
#include "tools/report/console_observer.h"
#include "tools/report/exit_codes.h"
#include "tools/session/averaging_choice.h"
#include "tools/session/compute_choice.h"
#include "tools/session/data_choice.h"
#include "tools/session/data_staging.h"
#include "tools/session/training_choice.h"

namespace tools {

struct TrainSession::Impl {
  Impl(const tools::RunConfig& c, backends::Group& g)
      : config(c),
        device_map(io::DeviceMap::parse(c.map_location)),
        group(g),
        compute(choose_compute(c, g)),
        control(host_communicator(g)),
        wire(host_communicator(g)),
        device_wire(make_device_wire()),
        data(io::load_dataset(stage_dataset(c, g, *control))),
        pool(make_pool(c, g)),
        graph(build_graph(c, data.train)),
        model(engine::ModelState::allocate(graph, engine::state_dtype(compute.storage))),
        order(c.shuffle ? io::make_epoch_order(c.sampler, data.train) : nullptr),
        sampler(sampler_options(c, data.train, g, order.get())),
        total_steps(c.steps > 0 ? c.steps : c.epochs * sampler.steps_per_epoch()),
        plan(engine::Plan::compile(graph, plan_options(c, compute, sampler, pool))),
        statistics(g.world_size() > 1 && graph.layers_that_use_replicas() > 0 ? host_communicator(g)
                                                                              : nullptr),
        replicas(statistics ? engine::make_rank_statistics(*statistics) : nullptr),
        optimizer(make_optimizer(c, model.parameters.values)),
        control_of_scale(engine::first_control(compute.loss_scale)),
        work(make_work()),
        context{.device = {}, .threads = &pool, .scratch = {}},
        island(island_ranks(c, g)),
        island_wire(c.sync_island == "host" && g.world_size() > 1 ? host_communicator(g, island)
                                                                  : nullptr),
        policy(device_wire
                   ? engine::make_device_gradient_averaging(model.parameters.gradients)
                   : make_averaging(c, g, {*wire, island_wire.get(), model, *optimizer, context})),
        rate(make_learning_rate(c, g.world_size(), sampler.steps_per_epoch(), total_steps)),
        state{model,
              *optimizer,
              *policy,
              {},
              compute.device,
              c.seed,
              global_batch_of(c, g.world_size()),
              data.train.size(),
              buffer_mode(c),
              sampler.steps_per_epoch(),
              compute.loss_scale,
              compute.cuda() ? &control_of_scale : nullptr},
        loader(data.train, sampler_options(c, data.train, g, order.get()),
               {.normalization = normalization(c, data.train),
                .workers = c.workers,
                .prefetch = c.prefetch,
                .augmentation = augmentation(c),
                .bytes = engine::sends_bytes(data.train, compute.device)}),
        keeper(*control, {.directory = c.save_dir,
                          .keep_last = c.keep_last,
                          .background = c.save_async,
                          .description = describe(),
                          .exit_code_of = exit_code_of,
                          .place = [this](const std::string& saved) { place(saved); },
                          .notice = print_notice}) {
    model.initialize(graph, c.seed);
    if (c.check_sampler) io::check_partition(sampler_options(c, data.train, g, order.get()));
    if (c.eval_every.every > 0 && data.test.size() > 0)
      evaluator = std::make_unique<engine::Evaluator>(
          *control, graph, model, pool, data.test,
          engine::EvaluatorOptions{.normalization = normalization(c, data.train),
                                   .dtype = compute.storage,
                                   .device = compute.device,
                                   .products = compute.products});
    if (c.verify_every > 0 && g.world_size() > 1) {
      if (policy->local_parameters())
        throw io::ConfigError("verify-every compares replicas, but --sync " + c.sync +
                              " never brings them together");
      desync = std::make_unique<engine::DesyncCheck>(
          *control, state,
          engine::DesyncOptions{.every = c.verify_every,
                                .action = on_desync(c),
                                .remember = !compute.cuda(),  // each digest would fetch the state
                                .equal_statistics = c.sync_bn});
    }
  }

  std::function<std::unique_ptr<engine::DeviceGradientSum>(const engine::FlatBuffer&)> device_sum()
      const {
    if (!device_wire) return {};
    return [this](const engine::FlatBuffer& gradients) {
      return engine::make_device_sum(
          *device_wire, gradients,
          {.bucket_bytes = static_cast<std::int64_t>(config.bucket_cap_mb * (1 << 20)),
           .overlap = !config.delay_allreduce});
    };
  }

  std::unique_ptr<engine::StepWork> make_work() {
    if (compute.cuda()) {
      engine::cuda::use_device(compute.device.index);
      apply_warpgroup_switch();
      return engine::make_device_work(
          plan, model, *optimizer,
          {.device = compute.device,
           .seed = config.seed,
           .micro_batches = config.grad_accum,
           .products = compute.products,
           .loss_scale = compute.loss_scale,
           .control = &control_of_scale,
           .graph = compute.graph,
           .pinned = compute.pinned,
           .non_blocking = compute.non_blocking,
           .image_table =
               engine::image_table(data.train, normalization(config, data.train), compute.device),
           .replicas = replicas.get(),
           .make_sum = device_sum(),
           .agreement = skips_apart() ? control.get() : nullptr,
           .make_optimizer = [this](const engine::FlatBuffer& values) {
             return make_optimizer(config, values);
           }});
    }
    if (!config.canonical)
      return engine::make_accumulated_work(
          plan, model, pool,
          {.micro_batches = config.grad_accum, .seed = config.seed, .replicas = replicas.get()});
    const int own = config.reduction_shards / group.world_size();
    return engine::make_sharded_work(plan, model,
                                     {.shards = config.reduction_shards,
                                      .first = group.rank() * own,
                                      .own = own,
                                      .threads = pool.physical_threads(),
                                      .micro_batches = config.grad_accum,
                                      .seed = config.seed,
                                      .replicas = replicas.get()});
  }

  // NCCL's, where gradients can be averaged on the devices. Without it they pass through host
  // memory, bucket by bucket.
  std::unique_ptr<backends::DeviceCommunicator> make_device_wire() const {
    const bool plain_gradients =
        config.sync == "grad" && (config.compress.empty() || config.compress == "none");
    const bool chosen = config.backend == "nccl" || config.backend == "auto";
    if (!compute.cuda() || group.world_size() == 1 || !plain_gradients || !chosen) return nullptr;
    if (group.backend() == "inproc" && config.devices.size() < 2)
      return nullptr;  // threads that share one device
    engine::cuda::use_device(compute.device.index);
    backends::CommunicatorRequest request;
    request.backend = config.backend;
    auto communicator = group.make_device_communicator(request);
    if (communicator->name() != "nccl") communicator.reset();
    return communicator;
  }

  // Whether ranks could skip different steps: gradients stay each rank's own.
  bool skips_apart() const {
    return group.world_size() > 1 && compute.loss_scale.on() && config.sync != "grad";
  }

  // "4 ranks x 2 devices x 32 x 1" (the last: micro-batches), or each rank's share where they
  // differ.
  std::string batch_shares() const {
    const int world = group.world_size(),
              devices = std::max(1, static_cast<int>(config.devices.size()));
    const std::int64_t batch = state.global_batch, pieces = world * config.grad_accum;
    const auto counted = [](std::int64_t n, const char* what) {
      return std::to_string(n) + " " + what + (n == 1 ? "" : "s") + " x ";
    };
    if (batch % pieces == 0)
      return counted(world / devices, "rank") + counted(devices, "device") +
             std::to_string(batch / pieces) + " x " + std::to_string(config.grad_accum);
    std::string line;
    for (int r = 0; r < world; ++r) {
      if (r == 4 && world > 5) return line + " + ...";
      io::SamplerOptions share = sampler_options(config, data.train, group, order.get());
      share.rank = r;
      line += (r ? " + " : "") + std::to_string(io::Sampler(share).local_count(0));
    }
    return config.grad_accum == 1
               ? line
               : line + " in " + std::to_string(config.grad_accum) + " micro-batches";
  }

  // --map-location: a rank has one device, so that is where every array must go. All pass through
  // host memory.
  void place(const std::string& saved) const {
    static_cast<void>(place_array(device_map, saved, state.device,
                                  compute.cuda() ? engine::cuda::device_count() : 0));
  }

  io::Checkpoint describe() const {
    io::Checkpoint c;
    c.model = config.model;
    c.dataset = config.dataset;
    c.config = tools::to_toml(config.origin);
    c.build = std::string(ENGINE_VERSION) + " " + ENGINE_COMMIT;
    c.vocabulary = data.train.vocabulary;
    return c;
  }

  std::string load_or_share_state();

  const tools::RunConfig config;
  const io::DeviceMap device_map;
  backends::Group& group;
  const Compute compute;
  std::unique_ptr<backends::Communicator> control, wire;  // between steps; for the policy alone
  std::unique_ptr<backends::DeviceCommunicator>
      device_wire;  // null: gradients are not averaged on the device
  io::DatasetSplits data;
  engine::ThreadPool pool;
  engine::Graph graph;
  engine::ModelState model;
  std::unique_ptr<io::EpochOrder> order;  // null: the sampler's own
  io::Sampler sampler;
  std::int64_t total_steps;
  engine::Plan plan;
  std::unique_ptr<backends::Communicator>
      statistics;  // for layers with statistics over all ranks; null: none
  std::unique_ptr<engine::ReplicaExchange> replicas;
  std::unique_ptr<engine::Optimizer> optimizer;
  engine::StepControl control_of_scale;
  std::unique_ptr<engine::StepWork> work;
  engine::KernelContext context;
  std::vector<int> island;
  std::unique_ptr<backends::Communicator> island_wire;  // null where every rank is its own island
  std::unique_ptr<engine::AveragingPolicy> policy;
  engine::LearningRate rate;
  engine::TrainState state;
  io::BatchLoader loader;
  engine::CheckpointKeeper keeper;
  std::unique_ptr<engine::Evaluator> evaluator;
  std::unique_ptr<engine::DesyncCheck> desync;
  std::vector<std::unique_ptr<engine::TrainObserver>> observers;
  std::string resumed_from;
};

TrainSession::TrainSession(const tools::RunConfig& config, backends::Group& group)
    : impl_(std::make_unique<Impl>(config, group)) {}
TrainSession::~TrainSession() = default;

std::string TrainSession::start_state() {
  const std::string line = impl_->load_or_share_state();
  impl_->work->to_device();
  return line;
}

std::string TrainSession::Impl::load_or_share_state() {
  Impl& s = *this;
  if (s.config.resume != "none") s.resumed_from = s.keeper.resume(s.config.resume, s.state);
  if (!s.resumed_from.empty())
    return "resumed " + s.resumed_from + " at step " + std::to_string(s.state.progress.global_step);
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
  std::string line = "engine " ENGINE_VERSION ": " + s.config.model + " (" +
                     with_commas(s.model.parameter_count()) + " parameters, " + s.config.dtype +
                     ") on " + s.data.train.name + " (" + with_commas(s.data.train.size()) +
                     " train, " + with_commas(s.data.test.size()) + " test) | " +
                     std::to_string(world) + (world == 1 ? " rank x " : " ranks x ") +
                     compute_text(s.compute, s.pool.physical_threads()) + " | backend " +
                     s.group.backend() + " (" + s.group.backend_reason() + ") | sync " +
                     averaging_text(s.config, s.policy->name());
  if (s.config.canonical) line += " (" + std::to_string(s.config.reduction_shards) + " shards)";
  if (const int layers = s.graph.layers_that_use_replicas(); s.config.sync_bn || layers > 0)
    line += " | sync-bn of " + std::to_string(layers) + (layers == 1 ? " layer" : " layers");
  line += " | global batch " + std::to_string(global_batch()) + " = " + s.batch_shares();
  char rates[64];
  std::snprintf(rates, sizeof rates, "%g", s.rate.base);
  return line + " | " + std::to_string(s.sampler.steps_per_epoch()) + " steps an epoch, " +
         std::to_string(s.total_steps) + " in all | " + s.config.optimizer + " lr " + rates + " " +
         s.config.lr_schedule + " | seed " + std::to_string(s.config.seed);
}

std::string TrainSession::shard_line() const {
  const Impl& s = *impl_;
  if (s.config.shard != "file") return "";
  const io::FileShard part =
      io::file_shard(s.data.train.size(), s.group.rank(), s.group.world_size());
  return "shard id: " + std::to_string(s.group.rank()) +
         ", world: " + std::to_string(s.group.world_size()) +
         ", start: " + std::to_string(part.start) + ", end: " + std::to_string(part.end);
}

std::vector<std::string> TrainSession::plan_lines() const {
  const Impl& s = *impl_;
  return averaging_plan_lines(s.config, s.group, impl_->model, *s.optimizer,
                              s.state.progress.global_step, s.sampler.steps_per_epoch(),
                              s.total_steps);
}

std::string TrainSession::graph_line() const {
  const auto* work = dynamic_cast<const engine::DeviceWork*>(impl_->work.get());
  if (work == nullptr) return "";
  if (impl_->device_wire && impl_->state.global_batch % impl_->group.world_size() != 0)
    return "not captured: the ranks' shares of a batch are unequal";
  return impl_->policy->changes_gradients() ? "not captured: gradients pass through host memory"
                                            : work->graph_text();
}

engine::Trainer TrainSession::make_trainer(const std::atomic<int>& stop_signal) {
  Impl& s = *impl_;
  std::vector<engine::TrainObserver*> observers;
  for (const auto& o : s.observers) observers.push_back(o.get());
  return engine::Trainer(
      {.total_steps = s.total_steps,
       .log_every = s.config.log_every,
       .evaluate = every(s.config.eval_every),
       .save = every(s.config.save_every),
       .clip_grad = s.config.clip_grad,
       .losses_of_a_sample =
           s.config.sum_losses ? static_cast<double>(s.data.train.positions()) : 0},
      {.work = *s.work,
       .state = s.state,
       .learning_rate = s.rate,
       .sampler = s.sampler,
       .loader = s.loader,
       .context = s.context,
       .control = *s.control,
       .evaluator = s.evaluator.get(),
       .keeper = s.keeper.enabled() ? &s.keeper : nullptr,
       .desync = s.desync.get(),
       .observers = std::move(observers),
       .island = s.island,
       .activity = [&g = s.group](std::string_view a) { g.set_activity(a); }},
      stop_signal);
}

engine::TrainResult TrainSession::run(const std::atomic<int>& stop_signal) {
  return make_trainer(stop_signal).run();
}

void TrainSession::add_observer(std::unique_ptr<engine::TrainObserver> observer) {
  impl_->observers.push_back(std::move(observer));
}
std::int64_t TrainSession::global_batch() const { return impl_->state.global_batch; }
std::int64_t TrainSession::steps_per_epoch() const { return impl_->sampler.steps_per_epoch(); }
std::int64_t TrainSession::total_steps() const { return impl_->total_steps; }
const io::Dataset& TrainSession::training_data() const { return impl_->data.train; }
bool TrainSession::on_device() const { return impl_->compute.cuda(); }
bool TrainSession::resumed() const { return !impl_->resumed_from.empty(); }
engine::TrainState& TrainSession::state() { return impl_->state; }
engine::CheckpointKeeper& TrainSession::keeper() { return impl_->keeper; }

}  // namespace tools
