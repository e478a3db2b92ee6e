// Connects all parts of a training; only this file knows all of them.
#include "tools/run/session/train_session_impl.h"

#include "engine/core/cuda.h"
#include "engine/train/statistics_pass.h"
#include "engine/train/step/loaded_batch.h"
#include "io/gpu/device_memory.h"
#include "tools/launch/machine/device_choice.h"
#include "tools/report/observers/console_observer.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/exit_codes.h"
#include "tools/run/choices/agreement.h"
#include "tools/run/choices/averaging_choice.h"
#include "tools/run/choices/machine_facts.h"
#include "tools/run/data/sample_statement.h"
#include "tools/run/data/start_coding.h"

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

io::DataDigest digest_of_data(const KeepingOptions& keeping, const SessionData& data) {
  if (!data.digest().text.empty()) return data.digest();
  const bool wanted = !keeping.directory.empty() || keeping.resume != "none";
  return wanted ? data_digest(data.splits()) : io::DataDigest{};
}

io::Checkpoint description(const SessionOptions& options, const SessionData& data,
                           const std::string& digest) {
  io::Checkpoint c;
  c.model = options.model.name;
  c.dataset = options.data.set.name;
  c.config = options.keeping.configuration;
  c.build = std::string(ENGINE_VERSION) + " " + ENGINE_COMMIT;
  c.vocabulary = data.train().vocabulary();
  c.run_id = options.keeping.run_id;
  c.definition = options.model.definition;
  c.data_digest = digest;
  c.samples = sample_statement(data.splits(), data.normalization());
  return c;
}

std::shared_ptr<engine::SnapshotWriter> writer_of(RetainedState& kept) {
  if (!kept.writer) kept.writer = std::make_shared<engine::SnapshotWriter>();
  return kept.writer;
}

}  // namespace

TrainSession::Impl::Impl(const SessionOptions& o, backends::Group& g,
                         std::unique_ptr<backends::Communicator> c, RetainedState* kept)
    : options(o),
      group(g),
      carried(kept),
      control(c ? std::move(c) : host_communicator(g)),
      compute(choose_compute(with_place(o.compute), g, *control)),
      processors(instruction_set_notice(g, *control, compute.products)),
      memory(memory_budget(g)),
      coded_data(with_start_coding(o, *control)),
      data(coded_data, o.compute.micro_batches, g, *control,
           coded_alike(kept == nullptr ? nullptr : kept->data, coded_data)),
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
  gather_facts({});
}

ComputeOptions TrainSession::Impl::with_place(ComputeOptions chosen) const {
  if (carried == nullptr) return chosen;
  carried->place = place_on_host(carried->place, group, *control);
  chosen.device.place = carried->place;
  return chosen;
}

void TrainSession::Impl::plan_steps() {
  const engine::RunLength length = run_length(options, data);
  epoch_steps = length.epochs_from(state.progress);
  total_steps = length.total_steps(state.progress);
  rate = learning_rate(options.update, group.world_size(), options.data.max_ranks, length,
                       state.progress);
}

std::shared_ptr<SessionModel> TrainSession::Impl::make_model() {
  std::shared_ptr<SessionModel> made;
  if (carried != nullptr && carried->image.state) made = carried->model;
  run_on_all_ranks(group, *control, [&] {
    if (made)
      made->refit(options, compute, group, data, memory);
    else
      made = std::make_shared<SessionModel>(options, compute, group, data, memory);
  });
  if (carried != nullptr) carried->model = made;
  return made;
}

std::unique_ptr<engine::StepWork> TrainSession::Impl::make_step_work() {
  std::unique_ptr<engine::StepWork> made;
  allocate_on_device(options, compute, group, data, model, [&] {
    made = make_work(options, compute, group, data, model, wires, *control);
  });
  return made;
}

engine::TrainState TrainSession::Impl::make_state() {
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
          .file_ranks = data.sampling().shard == io::Shard::kFile ? group.world_size() : 0,
          .shares = model.shared_update ? &model.shared_update->shares : nullptr};
}

engine::KeeperOptions TrainSession::Impl::keeper_options() {
  return {.directory = options.keeping.directory,
          .keep_last = options.keeping.keep_last,
          .background = options.keeping.background,
          .description = description(options, data, data_digest.text),
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

std::unique_ptr<engine::Evaluator> TrainSession::Impl::make_evaluator() {
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

std::unique_ptr<engine::DesyncCheck> TrainSession::Impl::make_desync() const {
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

void TrainSession::Impl::recompute_statistics(std::int64_t epoch) {
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

void TrainSession::Impl::place(const std::string& saved) const {
  static_cast<void>(place_array(options.keeping.placement, saved, state.device,
                                compute.cuda() ? engine::cuda::device_count() : 0));
}

}  // namespace tools
