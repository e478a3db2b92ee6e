// Evaluator: an inference plan over a private copy of rank 0's state.
#include "engine/train/evaluator.h"

#include <array>
#include <cstring>

namespace engine {
namespace {

io::SamplerOptions shares(const backends::Communicator& communicator, const io::Dataset& dataset, std::int64_t batch) {
  return {.size = dataset.size(),
          .global_batch = batch * communicator.world_size(),
          .rank = communicator.rank(),
          .world_size = communicator.world_size(),
          .seed = 0,
          .shuffle = false};
}

}  // namespace

struct Evaluator::Impl {
  Impl(backends::Communicator& c, const Graph& graph, ModelState& s, ThreadPool& threads, const io::Dataset& dataset,
       const EvaluatorOptions& options)
      : communicator(c),
        training(s),
        plan(Plan::compile(
            graph, {.max_batch = options.batch, .dtype = options.dtype, .threads = threads.threads(), .training = false})),
        own(c.world_size() > 1 ? ModelState::allocate(graph, options.dtype) : ModelState{}),
        executor(plan, c.world_size() > 1 ? own : s, threads, 0),
        sampler(shares(c, dataset, options.batch)),
        loader(dataset, shares(c, dataset, options.batch),
               {.normalization = options.normalization, .workers = 0, .prefetch = 1}) {}

  // Ranks' models may differ (running statistics, or parameters between averagings): all of them evaluate rank 0's.
  void take_rank_0() {
    const std::pair<const FlatBuffer*, const FlatBuffer*> pairs[] = {{&training.parameters.values, &own.parameters.values},
                                                                     {&training.running, &own.running},
                                                                     {&training.counters, &own.counters}};
    for (const auto& [from, to] : pairs) {
      if (to->bytes() == 0) continue;
      if (communicator.rank() == 0) std::memcpy(to->data(), from->data(), to->bytes());
      communicator.broadcast(to->data(), to->bytes(), 0);
    }
  }

  backends::Communicator& communicator;
  ModelState& training;
  Plan plan;
  ModelState own;
  Executor executor;
  io::Sampler sampler;
  io::BatchLoader loader;
};

Evaluator::Evaluator(backends::Communicator& communicator, const Graph& graph, ModelState& state, ThreadPool& threads,
                     const io::Dataset& dataset, const EvaluatorOptions& options)
    : impl_(std::make_unique<Impl>(communicator, graph, state, threads, dataset, options)) {}

Evaluator::~Evaluator() = default;

EvalReport Evaluator::run() {
  Impl& e = *impl_;
  if (e.communicator.world_size() > 1) e.take_rank_0();
  e.loader.seek(0, 0);
  double loss = 0;
  std::array<std::int64_t, 2> counts{};  // right, all
  for (std::int64_t step = 0; step < e.sampler.steps_per_epoch(); ++step) {
    const io::Batch& batch = e.loader.next();
    const BatchResult result = e.executor.forward({.count = batch.count(),
                                                   .samples = batch.samples,
                                                   .tokens = batch.tokens,
                                                   .labels = batch.labels,
                                                   .sample_ids = batch.sample_ids},
                                                  false);
    loss += result.loss_sum;
    counts[0] += result.correct;
    counts[1] += result.rows;
  }
  if (e.communicator.world_size() > 1) {
    e.communicator.all_reduce(&loss, 1, backends::DataType::kF64, backends::ReduceOp::kSum);
    e.communicator.all_reduce(counts.data(), counts.size(), backends::DataType::kI64, backends::ReduceOp::kSum);
  }
  return {.progress = {},
          .split = "test",
          .loss = counts[1] == 0 ? 0 : loss / static_cast<double>(counts[1]),
          .correct = counts[0],
          .samples = counts[1]};
}

}  // namespace engine
