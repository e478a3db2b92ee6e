// Evaluator: an inference plan over a private copy of rank 0's state.
#include "engine/train/evaluator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "engine/graph/inference.h"
#include "engine/train/step/loaded_batch.h"

namespace engine {
namespace {

constexpr std::int64_t kMostLogits =
    1 << 22;  // of a chunk: text with a large vocabulary goes in small ones

std::int64_t chunk_size(const io::Dataset& dataset, std::int64_t most) {
  return std::clamp<std::int64_t>(
      kMostLogits / std::max<std::int64_t>(1, dataset.positions() * dataset.classes), 1, most);
}

// Step c of it is chunk c, on every rank.
io::SamplerOptions chunks(const io::Dataset& dataset, std::int64_t chunk) {
  return {.size = dataset.size(),
          .global_batch = chunk,
          .rank = 0,
          .world_size = 1,
          .seed = 0,
          .shuffle = false};
}

}  // namespace

struct Evaluator::Impl {
  Impl(backends::Communicator& c, const Graph& graph, ModelState& s, ThreadPool& threads,
       const io::Dataset& dataset, const EvaluatorOptions& options)
      : communicator(c),
        training(s),
        text(dataset.kind == io::SampleKind::kTokens),
        sampler(chunks(dataset, chunk_size(dataset, options.batch))),
        own(c.world_size() > 1 ? ModelState::allocate(graph, options.dtype) : ModelState{}),
        model(graph, state(), threads,
              {.batch = sampler.max_local_count(),
               .dtype = options.dtype,
               .device = options.device,
               .products = options.products,
               .image_table = image_table(dataset, options.normalization, options.device)}),
        loader(dataset, chunks(dataset, chunk_size(dataset, options.batch)),
               {.normalization = options.normalization,
                .workers = 0,
                .prefetch = 1,
                .bytes = sends_bytes(dataset, options.device)}) {
    const auto world = static_cast<std::size_t>(c.world_size());
    if (options.by_class) by_class.emplace(dataset.classes);
    own_losses.resize((static_cast<std::size_t>(sampler.steps_per_epoch()) + world - 1) / world);
    losses.resize(own_losses.size() * world);
  }

  ModelState& state() { return communicator.world_size() > 1 ? own : training; }

  // Ranks' models may differ (running statistics, or parameters between averagings): all of them
  // evaluate rank 0's.
  void take_rank_0() {
    const std::pair<const FlatBuffer*, const FlatBuffer*> pairs[] = {
        {&training.parameters.values, &own.parameters.values},
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
  const bool text;
  io::Sampler sampler;
  ModelState own;
  Inference model;
  io::BatchLoader loader;
  std::vector<ops::ImageDraw> draws;       // none in evaluation, but a place for each image
  std::vector<double> own_losses, losses;  // by chunk: this rank's, all ranks'
  std::optional<ClassCounts> by_class;
};

Evaluator::Evaluator(backends::Communicator& communicator, const Graph& graph, ModelState& state,
                     ThreadPool& threads, const io::Dataset& dataset,
                     const EvaluatorOptions& options)
    : impl_(std::make_unique<Impl>(communicator, graph, state, threads, dataset, options)) {}

Evaluator::~Evaluator() = default;

EvalReport Evaluator::run() {
  Impl& e = *impl_;
  const int world = e.communicator.world_size();
  if (world > 1) e.take_rank_0();
  e.model.load();
  if (e.by_class) e.by_class->clear();
  std::array<std::int64_t, 4> counts{};  // samples, rows, right, among the first five
  std::size_t own = 0;
  std::fill(e.own_losses.begin(), e.own_losses.end(), 0.0);
  for (std::int64_t chunk = e.communicator.rank(); chunk < e.sampler.steps_per_epoch();
       chunk += world) {
    e.loader.seek(0, chunk);
    const io::Batch& batch = e.loader.next();
    const BatchResult result = e.model.forward(view_of(batch, e.draws));
    if (e.by_class) e.by_class->add(e.model.logits(), batch.labels);
    e.own_losses[own++] = result.loss_sum;
    counts[0] += batch.count();
    counts[1] += result.rows;
    counts[2] += result.correct;
    counts[3] += result.top5;
  }
  std::copy(e.own_losses.begin(), e.own_losses.end(), e.losses.begin());
  if (world > 1) {
    e.communicator.all_gather(e.own_losses.data(), e.own_losses.size() * sizeof(double),
                              e.losses.data());
    e.communicator.all_reduce(counts.data(), counts.size(), DType::kI64, backends::ReduceOp::kSum);
    if (e.by_class)
      e.communicator.all_reduce(e.by_class->all().data(), e.by_class->all().size(), DType::kI64,
                                backends::ReduceOp::kSum);
  }
  double loss = 0;
  for (std::size_t i = 0; i < e.own_losses.size(); ++i)  // chunk i * world + r is rank r's i-th
    for (std::size_t r = 0; r < static_cast<std::size_t>(world); ++r)
      loss += e.losses[r * e.own_losses.size() + i];
  return {.progress = {},
          .split = "test",
          .loss = counts[1] == 0 ? 0 : loss / static_cast<double>(counts[1]),
          .samples = counts[0],
          .rows = counts[1],
          .correct = counts[2],
          .top5 = e.model.classes() > 5 ? counts[3] : -1,
          .text = e.text};
}

const ClassCounts* Evaluator::class_counts() const {
  return impl_->by_class ? &*impl_->by_class : nullptr;
}

}  // namespace engine
