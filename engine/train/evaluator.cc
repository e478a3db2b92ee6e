// Evaluator: an inference plan over a private copy of rank 0's state.
#include "engine/train/evaluator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "engine/core/cuda.h"
#include "engine/graph/inference.h"
#include "engine/train/replicas/replica_sync.h"
#include "engine/train/step/batch_views.h"

namespace engine {
namespace {

constexpr std::int64_t kMaxGathered = 1 << 24;  // for roc_auc(): 8 bytes each on every rank
constexpr std::int64_t kMaxLogits =
    1 << 22;  // maximum per chunk: text with a large vocabulary uses small chunks

// A sampler whose step c is chunk c, on every rank.
io::SamplerOptions chunks(const io::Dataset& dataset, std::int64_t chunk) {
  return {.size = dataset.size(),
          .global_batch = chunk,
          .rank = 0,
          .world_size = 1,
          .seed = 0,
          .shuffle = false};
}

// The sums over a chunk's rows, in order, in f64, which are added over chunks and ranks.
struct ChunkSums {
  double loss = 0, squares = 0, distances = 0;  // squared and absolute errors of regression
};

void add_errors(std::span<const double> predictions, std::span<const float> targets,
                ChunkSums& sums) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const double error = predictions[i] - static_cast<double>(targets[i]);
    sums.squares += error * error;
    sums.distances += std::abs(error);
  }
}

// Adds a row whose label the model has; computes the kernel's loss in f64.
void add_row(std::span<const double> logits, std::int32_t label, BatchResult& result) {
  const double own = logits[static_cast<std::size_t>(label)];
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  std::int64_t before = 0;
  for (std::size_t c = 0; c < logits.size(); ++c) {
    sum += std::exp(logits[c] - largest);
    before += logits[c] > own || (logits[c] == own && c < static_cast<std::size_t>(label));
  }
  result.loss_sum += std::log(sum) - (own - largest);
  const bool comparable = !std::isnan(sum);
  result.correct += comparable && before == 0;
  result.top5 += comparable && before < 5;
}

// Counts a batch that has labels which the model does not have.
BatchResult known_rows(std::span<const double> logits, std::span<const std::int32_t> labels,
                       std::int64_t classes) {
  BatchResult result{};
  const auto width = static_cast<std::size_t>(classes);
  for (std::size_t r = 0; r < labels.size(); ++r)
    if (labels[r] < classes) add_row(logits.subspan(r * width, width), labels[r], result);
  result.rows = std::ssize(labels);
  return result;
}

// Returns NaN if no row has one of the model's classes.
double mean_loss(double sum, std::int64_t rows, std::int64_t unknown) {
  if (rows == 0) return 0;
  return rows == unknown ? std::numeric_limits<double>::quiet_NaN()
                         : sum / static_cast<double>(rows - unknown);
}

// Returns the sum of squared distances from the mean: every rank has all targets.
double spread_of(std::span<const float> targets) {
  double sum = 0, squares = 0;
  for (const float target : targets) sum += static_cast<double>(target);
  const double mean = sum / static_cast<double>(targets.size());
  for (const float target : targets)
    squares += (static_cast<double>(target) - mean) * (static_cast<double>(target) - mean);
  return squares;
}

RegressionErrors errors_of(const ChunkSums& sums, std::int64_t rows,
                           const io::TargetValues& targets) {
  const double deviation = targets.scale.deviation, spread = spread_of(targets.values),
               count = static_cast<double>(rows);
  return {.mse = rows == 0 ? 0 : deviation * deviation * sums.squares / count,
          .mae = rows == 0 ? 0 : deviation * sums.distances / count,
          .r2 = spread > 0 ? 1 - sums.squares / spread : std::numeric_limits<double>::quiet_NaN()};
}

// The labels of roc_auc(); null if it is not computed.
const io::ClassLabels* gathered_classes(const io::Dataset& set, const EvaluatorOptions& options) {
  const auto* classes = set.find<io::ClassLabels>();
  const bool wanted = options.by_class && classes != nullptr && set.unknown_classes().empty() &&
                      set.classes() <= kMaxGathered / std::max<std::int64_t>(1, set.size());
  return wanted ? classes : nullptr;
}

// Probabilities can be compared between samples, logits cannot.
void make_probabilities(std::span<double> row) {
  const double largest = *std::ranges::max_element(row);
  double sum = 0;
  for (double& value : row) sum += value = std::exp(value - largest);
  for (double& value : row) value /= sum;
}

}  // namespace

struct Evaluator::Impl {
  Impl(backends::Communicator& c, const Graph& graph, ModelState& s, ThreadPool& threads,
       const io::Dataset& dataset, const EvaluatorOptions& options)
      : communicator(c),
        training(s),
        set(dataset),
        targets(dataset.find<io::TargetValues>()),
        labels_of_set(dataset.find<io::MultiLabels>()),
        classes_of_set(gathered_classes(dataset, options)),
        exit_code_of(options.exit_code_of),
        sampler(chunks(dataset, evaluation_batch(dataset, options.batch))),
        own(c.world_size() > 1 ? ModelState::allocate(graph, options.dtype, {}, /*gradients=*/false)
                               : ModelState{}),
        model(graph, state(), threads,
              {.batch = sampler.max_local_count(),
               .dtype = options.dtype,
               .device = options.device,
               .products = options.products,
               .image_table = image_table(dataset, options.normalization, options.device)}),
        loader(dataset, chunks(dataset, evaluation_batch(dataset, options.batch)),
               {.normalization = options.normalization,
                .workers = 0,
                .prefetch = 1,
                .bytes = sends_bytes(dataset, options.device)}) {
    const auto world = static_cast<std::size_t>(c.world_size());
    const bool by_position = dataset.find<io::PositionLabels>() != nullptr;
    if ((options.by_class || by_position) && dataset.label_traits().classes)
      by_class.emplace(dataset.classes(), std::ssize(dataset.unknown_classes()));
    own_sums.resize((static_cast<std::size_t>(sampler.steps_per_epoch()) + world - 1) / world);
    sums.resize(own_sums.size() * world);
    if (gathers_logits()) {
      own_logits.resize(own_sums.size() * logits_per_chunk());
      all_logits.resize(own_logits.size() * world);
    }
  }

  std::size_t logits_per_chunk() const {
    return static_cast<std::size_t>(sampler.max_local_count() * set.classes());
  }

  bool gathers_logits() const { return labels_of_set != nullptr || classes_of_set != nullptr; }

  // Puts the gathered logits of chunk i * world + r, which is rank r's i-th, into the set's order.
  std::vector<double> ordered_logits() const {
    const auto world = static_cast<std::size_t>(communicator.world_size());
    const std::size_t each = logits_per_chunk(),
                      total = static_cast<std::size_t>(set.size() * set.classes());
    std::vector<double> ordered(total);
    for (std::size_t chunk = 0; chunk * each < total; ++chunk)
      std::copy_n(all_logits.data() + (chunk % world) * own_logits.size() + chunk / world * each,
                  std::min(each, total - chunk * each), ordered.data() + chunk * each);
    return ordered;
  }

  LabelScores scores() const {
    return label_scores(ordered_logits(), labels_of_set->values, labels_of_set->classes());
  }

  // Replaces labels that the model does not have by another one, and returns the number of such
  // rows.
  std::int64_t replace_unknown(BatchView& view) {
    if (set.unknown_classes().empty()) return 0;
    labels.assign(view.labels.begin(), view.labels.end());
    const std::int64_t classes = set.classes();
    std::int64_t unknown = 0;
    for (std::int32_t& label : labels) {
      if (label < classes) continue;
      label = 0;
      ++unknown;
    }
    view.labels = labels;
    return unknown;
  }

  // Samples are numbered in each set, so an error names the set as well.
  BatchResult forward(const BatchView& view) {
    try {
      return model.forward(view);
    } catch (const InputError& error) {
      throw InputError("evaluation of " + set.name + ": " + error.what());
    }
  }

  // Exchanges the results of all chunks.
  void gather() {
    std::copy(own_sums.begin(), own_sums.end(), sums.begin());
    std::copy(own_logits.begin(), own_logits.end(), all_logits.begin());
    if (communicator.world_size() == 1) return;
    communicator.all_gather(own_sums.data(), own_sums.size() * sizeof(ChunkSums), sums.data());
    if (gathers_logits())
      communicator.all_gather(own_logits.data(), own_logits.size() * sizeof(double),
                              all_logits.data());
    communicator.all_reduce(counts.data(), counts.size(), DType::kI64, backends::ReduceOp::kSum);
    if (by_class)
      communicator.all_reduce(by_class->all().data(), by_class->all().size(), DType::kI64,
                              backends::ReduceOp::kSum);
  }

  ModelState& state() { return communicator.world_size() > 1 ? own : training; }

  // The ranks' models may differ (running statistics, or parameters between averagings): all ranks
  // evaluate rank 0's.
  void take_rank_0() {
    const std::array from{&training.parameters.values, &training.running, &training.counters};
    const std::array to{&own.parameters.values, &own.running, &own.counters};
    for (std::size_t i = 0; i < to.size(); ++i)
      if (to[i]->bytes() > 0) std::memcpy(to[i]->data(), from[i]->data(), to[i]->bytes());
    equalize(communicator, to);
  }

  backends::Communicator& communicator;
  ModelState& training;
  const io::Dataset& set;
  const io::TargetValues* const targets;        // null: the labels are others
  const io::MultiLabels* const labels_of_set;   // the same
  const io::ClassLabels* const classes_of_set;  // null: no roc_auc()
  const std::function<int(const std::exception&)> exit_code_of;
  io::Sampler sampler;
  ModelState own;
  Inference model;
  io::BatchLoader loader;
  std::vector<ops::ImageDraw> draws;      // evaluation draws nothing, but each image needs an entry
  std::vector<ChunkSums> own_sums, sums;  // per chunk: of this rank, of all ranks
  std::vector<double> own_logits, all_logits;  // for several labels: the same
  // Samples, rows, correct rows, rows among the first five, rows of unknown classes.
  std::array<std::int64_t, 5> counts{};
  std::vector<std::int32_t>
      labels;  // a batch's labels, with those that the model does not have replaced
  std::optional<ClassCounts> by_class;
};

std::int64_t evaluation_batch(const io::Dataset& dataset, std::int64_t most) {
  return evaluation_batch(dataset.classes(), dataset.positions(),
                          std::max<std::int64_t>(1, std::min(most, dataset.size())));
}

std::int64_t evaluation_batch(std::int64_t classes, std::int64_t positions, std::int64_t most) {
  return std::clamp<std::int64_t>(kMaxLogits / std::max<std::int64_t>(1, positions * classes), 1,
                                  most);
}

Evaluator::Evaluator(backends::Communicator& communicator, const Graph& graph, ModelState& state,
                     ThreadPool& threads, const io::Dataset& dataset,
                     const EvaluatorOptions& options)
    : impl_(std::make_unique<Impl>(communicator, graph, state, threads, dataset, options)) {}

Evaluator::~Evaluator() = default;

EvalReport Evaluator::run() {
  measure(nullptr);
  return report();
}

std::optional<EvalReport> Evaluator::run_unless(const std::atomic<int>& stop_signal, int& stop) {
  const int stopped = measure(&stop_signal);
  if (stopped == 0) return report();
  stop = stopped;
  return std::nullopt;
}

int Evaluator::measure_chunks(const std::atomic<int>* stop_signal) {
  Impl& e = *impl_;
  e.model.load();
  std::size_t own = 0;
  for (std::int64_t chunk = e.communicator.rank(); chunk < e.sampler.steps_per_epoch();
       chunk += e.communicator.world_size()) {
    if (const int stopped = stop_signal == nullptr ? 0 : stop_signal->load(); stopped != 0)
      return stopped;
    e.loader.seek(0, chunk);
    const io::Batch& batch = e.loader.next();
    BatchView view = view_of(batch, e.draws);
    const std::int64_t unknown = e.replace_unknown(view);
    BatchResult result = e.forward(view);
    if (unknown > 0) result = known_rows(e.model.logits(), batch.labels, e.set.classes());
    if (e.by_class) e.by_class->add(e.model.logits(), batch.labels);
    if (e.targets != nullptr) add_errors(e.model.logits(), batch.targets, e.own_sums[own]);
    if (e.gathers_logits())
      std::ranges::copy(e.model.logits(), e.own_logits.data() + own * e.logits_per_chunk());
    e.own_sums[own++].loss = result.loss_sum;
    e.counts[0] += batch.count();
    e.counts[1] += result.rows;
    e.counts[2] += result.correct;
    e.counts[3] += result.top5;
    e.counts[4] += unknown;
  }
  return 0;
}

int Evaluator::measure(const std::atomic<int>* stop_signal) {
  Impl& e = *impl_;
  const int world = e.communicator.world_size();
  if (world > 1) e.take_rank_0();
  if (e.by_class) e.by_class->clear();
  e.counts = {};
  std::fill(e.own_sums.begin(), e.own_sums.end(), ChunkSums{});
  std::array<std::int64_t, 2> ends{};  // the signal, and 1 for an error
  std::exception_ptr failure;
  try {
    ends[0] = measure_chunks(stop_signal);
  } catch (const cuda::CudaError&) {
    throw;  // the state may be on this device
  } catch (const std::exception&) {
    if (stop_signal == nullptr || !e.exit_code_of) throw;
    failure = std::current_exception();
    ends[1] = 1;
  }
  if (stop_signal != nullptr && world > 1)
    e.communicator.all_reduce(ends.data(), ends.size(), DType::kI64, backends::ReduceOp::kMax);
  if (ends[1] != 0) throw_on_all_ranks(e.communicator, failure, e.exit_code_of);
  if (ends[0] != 0) return static_cast<int>(ends[0]);
  e.gather();
  return 0;
}

EvalReport Evaluator::report() const {
  const Impl& e = *impl_;
  const auto& counts = e.counts;
  const auto world = static_cast<std::size_t>(e.communicator.world_size());
  ChunkSums all;
  for (std::size_t i = 0; i < e.own_sums.size(); ++i)  // chunk i * world + r is rank r's i-th
    for (std::size_t r = 0; r < world; ++r) {
      const ChunkSums& chunk = e.sums[r * e.own_sums.size() + i];
      all.loss += chunk.loss;
      all.squares += chunk.squares;
      all.distances += chunk.distances;
    }
  return {.progress = {},
          .split = "test",
          .loss = e.labels_of_set != nullptr ? mean_loss(all.loss, e.labels_of_set->known(), 0)
                                             : mean_loss(all.loss, counts[1], counts[4]),
          .samples = counts[0],
          .rows = counts[1],
          .correct = counts[2],
          .unknown = counts[4],
          .top5 = e.set.label_traits().classes && e.model.classes() > 5 ? std::optional(counts[3])
                                                                        : std::nullopt,
          .text = e.set.label_traits().perplexity,
          .errors = e.targets != nullptr ? std::optional(errors_of(all, counts[1], *e.targets))
                                         : std::nullopt,
          .labels = e.labels_of_set != nullptr ? std::optional(e.scores()) : std::nullopt,
          .mean_iou = e.set.find<io::PositionLabels>() != nullptr
                          ? std::optional(engine::mean_iou(*e.by_class))
                          : std::nullopt};
}

std::optional<double> Evaluator::roc_auc() const {
  const Impl& e = *impl_;
  if (e.classes_of_set == nullptr) return std::nullopt;
  std::vector<double> scores = e.ordered_logits();
  const auto width = static_cast<std::size_t>(e.set.classes());
  std::vector<float> is_label(scores.size(), 0);
  for (std::size_t i = 0; i < e.classes_of_set->ids.size(); ++i) {
    make_probabilities(std::span(scores).subspan(i * width, width));
    is_label[i * width + static_cast<std::size_t>(e.classes_of_set->ids[i])] = 1;
  }
  return label_scores(scores, is_label, e.set.classes()).mean_roc_auc();
}

const ClassCounts* Evaluator::class_counts() const {
  return impl_->by_class ? &*impl_->by_class : nullptr;
}

}  // namespace engine
