// Dataset, model, plan, loader and trainer of a small training.
#include "tests/engine/train/tiny_training.h"

#include <atomic>

#include "io/data/sources/dataset_registry.h"
#include "models/model_catalog.h"

namespace tiny_training {
namespace {

io::SamplerOptions shares_of(const Options& options) {
  return {.size = options.samples,
          .global_batch = options.batch,
          .rank = options.rank,
          .world_size = options.world_size,
          .seed = options.seed,
          .shuffle = options.shuffle,
          .shares_change = options.shares_change};
}

engine::Graph make_graph(const Options& options, const io::Dataset& set) {
  if (options.make_graph) return options.make_graph(set);
  return models::build_model(
      options.model, {.sample_shape = {options.shape[0], options.shape[1], options.shape[2]},
                      .classes = set.classes()});
}

engine::ModelState first_state(const engine::Graph& graph, const Options& options) {
  engine::ModelState state =
      engine::ModelState::allocate(graph, engine::state_dtype(options.storage));
  state.initialize(graph, options.seed);
  return state;
}

}  // namespace

io::Dataset images(const std::array<std::int64_t, 3>& shape, std::int64_t samples) {
  io::DatasetOptions options;
  options.name = "synthetic";
  options.synthetic.shape = shape;
  options.synthetic.size = samples;
  return io::load_dataset(options).train;
}

Parts::Parts(const Options& options)
    : set(images(options.shape, options.samples)),
      graph(make_graph(options, set)),
      model(first_state(graph, options)),
      pool(1),
      shares(shares_of(options)),
      sampler(shares),
      plan(engine::Plan::compile(
          graph, {.max_batch = (sampler.max_local_count() - 1) / options.micro_batches + 1,
                  .dtype = options.storage,
                  .threads = 1,
                  .device = options.device.kind})),
      loader(set, shares, options.loader) {
  draws.reserve(static_cast<std::size_t>(sampler.max_local_count()));
}

engine::BatchView Parts::next_batch() { return engine::view_of(loader.next(), draws); }

engine::TrainResult train(Parts& parts, const Run& run) {
  engine::TrainState state{.model = parts.model,
                           .optimizer = run.optimizer,
                           .policy = run.policy,
                           .home = run.work.home(),
                           .progress = {},
                           .device = {},
                           .loss_scale = run.loss_scale,
                           .control = run.scaling};
  const engine::LearningRate rate;
  const std::atomic<int> never{0};
  engine::Trainer trainer(
      {.total_steps = run.steps,
       .log_every = run.log_every,
       .evaluate = {},
       .save = {},
       .clip_grad = run.clip_grad,
       .on_nonfinite = run.on_nonfinite},
      {.work = run.work,
       .state = state,
       .learning_rate = rate,
       .sampler = parts.sampler,
       .loader = parts.loader,
       .control = run.control,
       .balance = run.balance,
       .observers = run.observer != nullptr ? std::vector<engine::TrainObserver*>{run.observer}
                                            : std::vector<engine::TrainObserver*>{},
       .island = {},
       .activity = {}},
      never);
  return trainer.run();
}

}  // namespace tiny_training
