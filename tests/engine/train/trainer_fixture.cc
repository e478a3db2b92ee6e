// Graph, parts and threads of the trainer's tests.
#include "tests/engine/train/trainer_fixture.h"

#include <exception>
#include <thread>

#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "engine/layers/layers.h"
#include "tests/engine/optim/typed_optimizers.h"
#include "tests/support/time_limits.h"

namespace trainer_fixture {
namespace {

engine::Graph make_graph(const io::Dataset& set) {
  engine::Graph graph;
  const engine::NodeId images =
      graph.input("images", engine::Shape{set.shape()[0], set.shape()[1], set.shape()[2]});
  const engine::NodeId labels = graph.input("labels", engine::Shape{}, engine::DType::kI32);
  const engine::NodeId norm = graph.add("norm", engine::layers::batch_norm2d(), {images});
  const engine::NodeId flat = graph.add("", engine::layers::flatten(), {norm});
  const engine::NodeId logits = graph.add("fc", engine::layers::dense(set.classes()), {flat});
  graph.set_outputs(logits,
                    graph.add("", engine::layers::softmax_cross_entropy(), {logits, labels}));
  return graph;
}

std::unique_ptr<engine::AveragingPolicy> make_policy(Averaging averaging,
                                                     backends::Communicator& communicator,
                                                     engine::ParameterBuffer& parameters,
                                                     engine::KernelContext& context) {
  if (averaging == Averaging::kParameters)
    return engine::make_parameter_averaging(communicator, parameters, context, {});
  if (averaging == Averaging::kNone) return engine::make_no_averaging(communicator.world_size());
  engine::FlatBuffer& gradients = parameters.gradients;
  return engine::make_gradient_averaging(averaging == Averaging::kCodedGradients
                                             ? engine::make_bf16_sum(communicator, gradients)
                                             : engine::make_plain_sum(communicator, gradients),
                                         gradients);
}

engine::CheckpointManagerOptions checkpoint_manager_options(const Options& of_run) {
  engine::CheckpointManagerOptions options;
  options.directory = of_run.folder;
  options.take_folder = of_run.take_folder;
  options.keep_last = 0;
  options.exit_code_of = [](const std::exception&) { return 1; };
  return options;
}

}  // namespace

Rank::Rank(const Options& options, backends::Group& group)
    : gradients(std::make_unique<HookedCommunicator>(group.make_communicator())),
      control(std::make_unique<HookedCommunicator>(group.make_communicator())),
      parts({.rank = group.rank(),
             .world_size = group.world_size(),
             .shuffle = true,
             .seed = 5,
             .make_graph = make_graph}),
      optimizer(engine::make_sgd({.momentum = 0.9}, parts.model.parameters.values)),
      context{.device = {}, .threads = &parts.pool, .scratch = {}},
      work(engine::make_accumulated_work({parts.plan, parts.model, *optimizer, parts.pool}, {})),
      policy(make_policy(options.averaging, *gradients, parts.model.parameters, context)),
      state{.model = parts.model,
            .optimizer = *optimizer,
            .policy = *policy,
            .home = work->home(),
            .progress = {},
            .device = {},
            .seed = 5,
            .global_batch = 6,
            .dataset_size = parts.set.size(),
            .steps_per_epoch = parts.sampler.steps_per_epoch()},
      checkpoints(*control, checkpoint_manager_options(options)),
      options_(options) {
  rate_.base = 0.1;
  if (options.evaluates)
    evaluator_ = std::make_unique<engine::Evaluator>(*control, parts.graph, parts.model, parts.pool,
                                                     parts.set, engine::EvaluatorOptions{});
  if (options.best) {
    best_ = std::make_unique<engine::BestModel>(*options.best);
    state.parts.push_back(best_.get());
  }
  if (options.average_last == 0) return;
  const auto recompute_statistics = [this](std::int64_t) {
    if (recompute) recompute();
    for (float& value : parts.model.running.span<float>()) value *= 2;
  };
  average_ = std::make_unique<engine::EpochAverage>(
      parts.model, context,
      engine::EpochAverageOptions{
          .epochs = options.average_last,
          .run = {.steps = options.steps, .steps_per_epoch = parts.sampler.steps_per_epoch()},
          .recompute_statistics = recompute_statistics});
  state.parts.push_back(average_.get());
}

Rank::~Rank() = default;

engine::TrainResult Rank::run() { return train(""); }

engine::TrainResult Rank::resume() { return train(checkpoints.resume("auto", state)); }

engine::TrainResult Rank::train(const std::string& resumed_from) {
  engine::Trainer trainer({.total_steps = options_.steps,
                           .log_every = options_.log_every,
                           .evaluate = options_.evaluate,
                           .save = options_.save,
                           .on_nonfinite = options_.on_nonfinite,
                           .supports_rollback = options_.supports_rollback,
                           .min_ranks = options_.min_ranks,
                           .leave_signal = options_.leave_signal},
                          {.work = *work,
                           .state = state,
                           .learning_rate = rate_,
                           .sampler = parts.sampler,
                           .loader = parts.loader,
                           .control = *control,
                           .evaluator = evaluator_.get(),
                           .checkpoints = checkpoints.enabled() ? &checkpoints : nullptr,
                           .best = best_.get(),
                           .average = average_.get(),
                           .observers = {this},
                           .island = {},
                           .activity = {},
                           .resumed_from = resumed_from,
                           .done = done,
                           .pause = pause,
                           .leave = leave},
                          stop_signal);
  return trainer.run();
}

std::string Rank::state_bytes() const {
  std::vector<const engine::FlatBuffer*> buffers{&parts.model.parameters.values,
                                                 &parts.model.running, &parts.model.counters};
  for (const engine::Optimizer::State& s : optimizer->state()) buffers.push_back(s.buffer);
  std::string bytes;
  for (const engine::FlatBuffer* buffer : buffers)
    bytes.append(static_cast<const char*>(buffer->data()), buffer->bytes());
  return bytes;
}

void Rank::note(const std::string& what, std::int64_t at) {
  events.push_back(what + " " + std::to_string(at));
}
void Rank::on_step(const engine::TrainProgress& progress) {
  note("step", progress.global_step);
  if (after_step) after_step(progress.global_step);
}
void Rank::on_report(const engine::StepReport& report) {
  note("report", report.progress.global_step);
}
void Rank::on_eval(const engine::EvalReport& report) {
  note("evaluated", report.progress.global_step);
}
void Rank::on_nonfinite(const engine::TrainProgress&, const engine::NonFiniteReport& found) {
  events.push_back("not finite: " + found.what);
}
void Rank::on_save(const engine::TrainProgress& progress, const std::string&) {
  note("saved", progress.global_step);
}
void Rank::on_end(const engine::TrainResult&) { events.emplace_back("end"); }

void in_threads(int world, const std::function<void(backends::Group&)>& body) {
  auto groups = backends::make_inproc_groups(world, test_support::deadline_ms(20'000));
  std::vector<std::exception_ptr> failures(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < groups.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        const std::unique_ptr<backends::Group> group = std::move(groups[r]);
        body(*group);
        group->leave();
      } catch (...) {
        failures[r] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

void on_ranks(int world, const Options& options, const std::function<void(Rank&)>& body) {
  in_threads(world, [&](backends::Group& group) {
    Rank rank(options, group);
    body(rank);
  });
}

}  // namespace trainer_fixture
