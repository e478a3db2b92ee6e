// Connects all parts of a training; only this file knows all of them.
#include "tools/run/session/session_parts.h"

#include <utility>

#include "engine/core/cuda.h"
#include "engine/optim/loss_scale.h"
#include "engine/train/statistics_pass.h"
#include "engine/train/step/batch_views.h"
#include "io/data/readers/tokens/text_files.h"
#include "io/gpu/device_memory.h"
#include "models/model_catalog.h"
#include "tools/launch/machine/device_choice.h"
#include "tools/report/output/build_info.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"
#include "tools/run/choices/agreement.h"
#include "tools/run/choices/averaging_choice.h"
#include "tools/run/choices/machine_facts.h"
#include "tools/run/choices/rate_choice.h"
#include "tools/run/data/sample_statement.h"
#include "tools/run/data/start_coding.h"

namespace tools {
namespace {

io::LoaderOptions loader_options(const DataOptions& options, const SessionData& data,
                                 engine::Device device, bool resident) {
  return {.normalization = data.normalization(),
          .workers = options.workers,
          .prefetch = options.prefetch,
          .augmentation = options.augmentation,
          .bytes = engine::sends_bytes(data.train(), device),
          .resident = resident};
}

bool needs_digest(const KeepingOptions& keeping) {
  return !keeping.directory.empty() || keeping.resume.is_wanted();
}

io::DataDigest digest_of_data(const KeepingOptions& keeping, const SessionData& data) {
  if (!data.digest().text.empty()) return data.digest();
  return needs_digest(keeping) ? data_digest(data.splits()) : io::DataDigest{};
}

std::string digest_of_test_data(const KeepingOptions& keeping, const SessionData& data) {
  return needs_digest(keeping) ? test_data_digest(data.splits()) : "";
}

// The tokenizer of the data, or else of the published model that was trained further.
std::string tokenizer_of(const SessionOptions& options) {
  if (options.data.set.name != "tokens") return "";
  std::string text = io::read_stored_tokenizer(options.data.set.directory);
  if (text.empty() && models::is_published_model(options.model.name))
    text = io::read_stored_tokenizer(options.model.name);
  return text;
}

io::Checkpoint description(const SessionOptions& options, const SessionInput& input) {
  const SessionData& data = input.data;
  io::Checkpoint c;
  c.model = options.model.name;
  c.dataset = options.data.set.name;
  c.config = options.keeping.configuration;
  c.build = std::string(ENGINE_VERSION) + " " + ENGINE_COMMIT;
  c.vocabulary = data.train().vocabulary();
  c.run_id = options.keeping.run_id;
  c.definition = options.model.definition;
  c.data_digest = input.digest.text;
  c.test_digest = input.test_digest;
  c.samples = sample_statement(data.splits(), data.normalization());
  c.tokenizer = tokenizer_of(options);
  return c;
}

std::shared_ptr<engine::CheckpointWriter> writer_of(RetainedState& kept) {
  if (!kept.writer) kept.writer = std::make_shared<engine::CheckpointWriter>();
  return kept.writer;
}

// The parts of `s` that stand before the one that is made are there already.
ComputeOptions compute_options(const SessionParts& s) {
  ComputeOptions chosen = s.options.compute;
  if (s.retained == nullptr) return chosen;
  s.retained->place = place_on_host(s.retained->place, s.group, *s.control);
  chosen.device.place = s.retained->place;
  return chosen;
}

SessionOptions of_group(SessionOptions options, const backends::Group& group) {
  options.averaging = options_of_group(std::move(options.averaging), group.world_size());
  return options;
}

// A device itself skips steps, by its loss scale; a scale of 1 changes no number.
Compute with_skipping(Compute compute, const SessionOptions& options) {
  if (compute.cuda() && options.on_nonfinite == engine::OnNonFinite::kSkip &&
      !compute.loss_scale.on())
    compute.loss_scale = engine::parse_loss_scale("1");
  return compute;
}

// Collective: a host may lack the memory that the others have.
std::shared_ptr<SessionModel> make_model(const SessionParts& s) {
  std::shared_ptr<SessionModel> made;
  if (s.retained != nullptr && s.retained->state.checkpoint) made = s.retained->model;
  run_on_all_ranks(s.group, *s.control, [&] {
    if (made)
      made->refit(s.setting(), s.host.memory);
    else
      made = std::make_shared<SessionModel>(s.setting(), s.host.memory);
  });
  if (s.retained != nullptr) s.retained->model = made;
  return made;
}

template <class Make>
auto make_on_device(const SessionParts& s, const Make& make) {
  decltype(make()) made;
  allocate_on_device(s.setting(), s.model->planned(), [&] { made = make(); });
  return made;
}

std::unique_ptr<engine::StepWork> make_step_work(const SessionParts& s) {
  return make_on_device(
      s, [&] { return make_work(s.setting(), *s.model, s.communicators, *s.control); });
}

engine::TrainState make_state(const SessionParts& s) {
  const SessionData& data = s.input.data;
  SessionModel& model = *s.model;
  return {
      .model = model.state,
      .optimizer = *model.optimizer,
      .policy = *s.policy,
      .home = s.work->home(),
      .progress = {},
      .device = s.compute.device,
      .seed = s.options.seed,
      .global_batch = data.global_batch(),
      .dataset_size = data.train().size(),
      .buffers =
          s.options.model.synchronized_statistics ? engine::BufferMode::kEqual : s.options.buffers,
      .steps_per_epoch = data.sampler().steps_per_epoch(),
      .loss_scale = s.compute.loss_scale,
      .control = s.compute.cuda() ? &model.control : nullptr,
      .may_restore = {.other_optimizer = s.options.keeping.other_optimizer,
                      .other_batch = s.options.data.batch_scales},
      .ranks = {.of_files = data.sampling().shard == io::Shard::kFile ? s.group.world_size() : 0,
                .first_of_island = first_island_ranks(s.options.averaging, s.group)},
      .shares = model.shared_update ? &model.shared_update->shares : nullptr};
}

engine::CheckpointManagerOptions checkpoint_manager_options(const SessionParts& s) {
  const KeepingOptions& keeping = s.options.keeping;
  return {.directory = keeping.directory,
          .keep_last = keeping.keep_last,
          .background = keeping.background,
          .description = description(s.options, s.input),
          .exit_code_of = exit_code_of,
          .admit =
              [&s](const io::Checkpoint& checkpoint, const std::string& path) {
                const SessionInput& input = s.input;
                if (s.options.keeping.admit)
                  s.options.keeping.admit(checkpoint, path,
                                          {.digest = input.digest,
                                           .test_digest = input.test_digest,
                                           .train = input.data.train().size(),
                                           .test = input.data.test().size()});
              },
          .before_write = keeping.before_write,
          .take_folder = keeping.take_folder,
          .place = [&s](const std::string& saved) { place_saved(s, saved); },
          .notice = print_notice};
}

std::unique_ptr<engine::Evaluator> make_evaluator(const SessionParts& s) {
  const SessionData& data = s.input.data;
  if (s.options.evaluate.count <= 0 || data.test().size() == 0) return nullptr;
  return make_on_device(s, [&] {
    const base::cuda::MemoryPurpose purpose("evaluation");
    return std::make_unique<engine::Evaluator>(
        *s.control, s.model->graph, s.model->state, s.model->pool, data.test(),
        engine::EvaluatorOptions{.normalization = data.normalization(),
                                 .dtype = s.compute.storage,
                                 .device = s.compute.device,
                                 .products = s.compute.products,
                                 .exit_code_of = s.retained == nullptr ? exit_code_of : nullptr});
  });
}

std::unique_ptr<engine::DesyncCheck> make_desync(const SessionParts& s) {
  const SessionOptions& options = s.options;
  if (options.verify_every <= 0 || s.group.world_size() == 1) return nullptr;
  if (s.policy->differences().parameters)
    throw io::ConfigError("--verify-every compares replicas, but --sync " + options.averaging.name +
                          " never brings them together");
  return std::make_unique<engine::DesyncCheck>(
      *s.control, s.state,
      engine::DesyncOptions{.every = options.verify_every,
                            .action = options.on_desync,
                            .remember = !s.compute.cuda(),  // each digest would fetch the state
                            .equal_statistics = options.model.synchronized_statistics ||
                                                options.buffers == engine::BufferMode::kEqual});
}

void report_statistics(const engine::StatisticsReport& report) {
  const std::string of_steps =
      std::to_string(report.skipped) + " of " + std::to_string(report.steps) + " steps";
  if (report.skipped > 0)
    print_notice("warning: running statistics of the average are without " + of_steps +
                 ", which make them not finite (--on-nonfinite skip)" +
                 (report.skipped == report.steps ? ": they are the model's own" : ""));
  if (!report.not_finite.empty())
    print_notice("warning: '" + report.not_finite +
                 "' of the average is not finite (NaN or infinity), so the average cannot be used" +
                 (report.skipped > 0 ? "" : "; --on-nonfinite skip leaves out such steps"));
}

void recompute_statistics(SessionParts& s, std::int64_t epoch) {
  const engine::StatisticsReport report = engine::recompute_statistics(
      {.graph = s.model->graph,
       .model = s.model->state,
       .threads = s.model->pool,
       .sampler = s.input.data.sampler(),
       .loader = s.loader,
       .communicator = *s.control,
       .micro_batches = s.options.compute.micro_batches,
       .products = s.compute.products,
       .seed = s.options.seed,
       .replicas = s.communicators.replicas.get(),
       .device = s.compute.device,
       .storage = s.compute.storage,
       .image_table = engine::image_table(s.input.data.train(), s.input.data.normalization(),
                                          s.compute.device),
       .resident = resident_samples(*s.model),
       .skips_nonfinite = s.options.on_nonfinite == engine::OnNonFinite::kSkip},
      epoch);
  if (s.group.rank() == 0) report_statistics(report);
}

std::unique_ptr<engine::ShareBalance> make_balance(const SessionParts& s) {
  const DataOptions& data = s.options.data;
  if (!s.input.data.sampling().shares_change ||
      !(data.shares.automatic || data.local_steps.automatic))
    return nullptr;
  return std::make_unique<engine::ShareBalance>(
      engine::ShareBalanceOptions{.ranks = s.group.world_size()});
}

std::unique_ptr<engine::LocalSteps> make_local_steps(const SessionParts& s) {
  const ShareOptions& local = s.options.data.local_steps;
  if (local.are_equal() || s.group.world_size() == 1) return nullptr;
  return std::make_unique<engine::LocalSteps>(s.group.rank(), s.group.world_size(),
                                              io::BatchShares(local.weights), *s.model->optimizer);
}

std::unique_ptr<engine::SkippedSteps> make_skipped_steps(const SessionParts& s) {
  if (s.options.averaging.stale.max_behind == 0 || s.group.world_size() == 1) return nullptr;
  return std::make_unique<engine::SkippedSteps>(s.group.rank(), s.group.world_size(),
                                                *s.model->optimizer);
}

SessionMonitors make_monitors(SessionParts& s) {
  const auto recompute = [&s](std::int64_t epoch) { recompute_statistics(s, epoch); };
  return {.evaluator = make_evaluator(s),
          .desync = make_desync(s),
          .best = make_best_model(s.setting(), s.input.test_digest),
          .epoch_average = make_epoch_average(s.setting(), *s.model, recompute),
          .moving_average = engine::make_weight_average(*s.model->optimizer, s.model->state),
          .balance = make_balance(s),
          .local_steps = make_local_steps(s),
          .skipped_steps = make_skipped_steps(s)};
}

}  // namespace

SessionInput::SessionInput(const SessionParts& s)
    : options(with_start_coding(s.options, *s.control)),
      data(options, s.options.compute.micro_batches, s.group, *s.control,
           coded_alike(s.retained == nullptr ? nullptr : s.retained->data, options)),
      digest(digest_of_data(s.options.keeping, data)),
      test_digest(digest_of_test_data(s.options.keeping, data)) {}

SessionParts::SessionParts(const SessionOptions& o, backends::Group& g,
                           std::unique_ptr<backends::Communicator> c, RetainedState* kept)
    : options(of_group(o, g)),
      group(g),
      retained(kept),
      control(c ? std::move(c) : host_communicator(g)),
      compute(with_skipping(choose_compute(compute_options(*this), g, *control), options)),
      host{instruction_set_notice(g, *control, compute.products), memory_budget(g),
           DeviceCommunicators(options, compute, g)},
      input(*this),
      model(make_model(*this)),
      machines(gather_machines(*control, compute, model->pool.physical_threads())),
      communicators(options, g, model->graph, host.device_communicators),
      work(make_step_work(*this)),
      policy(make_policy(setting(), *model, communicators)),
      state(make_state(*this)),
      loader(input.data.train(), input.data.sampling(),
             loader_options(options.data, input.data, compute.device, model->samples != nullptr)),
      checkpoints(*control, checkpoint_manager_options(*this),
                  kept == nullptr ? nullptr : writer_of(*kept)),
      monitors(make_monitors(*this)) {
  engine::HomeMemory of_policy = policy->memory_at_home();
  allocate_on_device(setting(), model->planned(), [&] { state.home.add(std::move(of_policy)); });
  if (retained != nullptr) retained->data = input.data.loaded();
  if (monitors.best) state.parts.push_back(monitors.best.get());
  if (monitors.epoch_average) state.parts.push_back(monitors.epoch_average.get());
  // An elastic job measures again: another rank may have the number of one that left.
  if (monitors.balance && options.data.max_ranks == 0)
    state.parts.push_back(monitors.balance.get());
  if (monitors.local_steps && options.data.max_ranks == 0)
    state.parts.push_back(monitors.local_steps.get());
  if (monitors.skipped_steps && options.data.max_ranks == 0)
    state.parts.push_back(monitors.skipped_steps.get());
  plan_steps(*this);
  gather_facts(*this, {});
}

void plan_steps(SessionParts& s) {
  const engine::RunLength length = run_length(s.options, s.input.data);
  const engine::TrainProgress& from = s.state.progress;
  s.schedule = {.epoch_steps = length.epochs_from(from),
                .total_steps = length.total_steps(from),
                .rate = learning_rate(s.options.update, s.group.world_size(),
                                      s.options.data.max_ranks, length, from)};
}

void place_saved(const SessionParts& s, const std::string& saved) {
  static_cast<void>(place_array(s.options.keeping.placement, saved, s.state.device,
                                s.compute.cuda() ? engine::cuda::device_count() : 0));
}

}  // namespace tools
