// Exact evaluation: each sample counts once for any world size; integer counts and f64 sums.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include "backends/communicator.h"
#include "engine/graph/executor.h"
#include "engine/train/scores/class_counts.h"
#include "engine/train/train_observer.h"
#include "io/data/loader/batch_loader.h"

namespace engine {

struct EvaluatorOptions {
  std::int64_t batch = 64;  // maximum number of samples per forward pass
  io::Normalization normalization = io::Normalization::kUnit;
  DType dtype = DType::kF32;  // dtype of activations
  Device device = {};         // a CUDA device: computes there, from the state in host memory
  Products products = Products::kF32;
  // Also counts per class, as it always does for labels of positions: run() then copies and
  // allocates.
  bool by_class = false;
  // The exit code of an error. If set, an error of one rank ends run_unless() on all of them, with
  // RemoteError on the others; else the others wait for the rank.
  std::function<int(const std::exception&)> exit_code_of = {};
};

// Returns the number of samples per forward pass over this set, at most `most`: fewer if their
// outputs are large, or if the set is smaller.
std::int64_t evaluation_batch(const io::Dataset& dataset,
                              std::int64_t most = EvaluatorOptions{}.batch);

// The same for samples with `positions` labels each, if there are enough of them.
std::int64_t evaluation_batch(std::int64_t classes, std::int64_t positions,
                              std::int64_t most = EvaluatorOptions{}.batch);

class Evaluator {
 public:
  // All arguments must outlive the evaluator. Allocates a copy of the state if the world has
  // several ranks.
  Evaluator(backends::Communicator& communicator, const Graph& graph, ModelState& state,
            ThreadPool& threads, const io::Dataset& dataset, const EvaluatorOptions& options);
  ~Evaluator();

  // Evaluates rank 0's current model on this set; the chunks of samples are distributed round-robin
  // over the ranks. The division into chunks depends only on the set and the options, and their
  // losses are added in order: the report is the same, bit by bit, for any world size (with the
  // same number of threads and instruction set). Does not change the state. Collective. In the
  // report `progress` is empty and `split` is "test". Regression errors are f64 sums per chunk as
  // well. For several labels per sample, every rank gets all logits, 8 bytes each. A sample of one
  // of the set's unknown_classes counts as wrong and has no loss.
  EvalReport run();
  // The same, but once `stop_signal` is not 0 on a rank, every rank ends the evaluation within one
  // of its chunks: then returns null on all ranks, and `stop` is the largest signal. Throws what
  // reading or computing a chunk throws, with EvaluatorOptions::exit_code_of on all ranks together;
  // the state is unchanged then.
  std::optional<EvalReport> run_unless(const std::atomic<int>& stop_signal, int& stop);
  // The exact counts of the last run() over all ranks; null unless they were requested, and if
  // no classes are predicted.
  const ClassCounts* class_counts() const;
  // The area under the ROC curve of the last run(): of each class against the others by its
  // probability, the mean over the classes that occur, exact by sorting (roc_auc_score() with
  // multi_class='ovr'). Nothing unless by_class was requested and each sample has one class, all of
  // which the model has; nothing for more than 2^24 logits, which every rank would keep; NaN if
  // only one class occurs.
  std::optional<double> roc_auc() const;

 private:
  int measure(const std::atomic<int>* stop_signal);  // returns the signal that ended it; 0: it was
                                                     // completed
  // Computes this rank's chunks, until there is a signal, which it returns.
  int measure_chunks(const std::atomic<int>* stop_signal);
  EvalReport report() const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace engine
