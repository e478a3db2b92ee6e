// Exact evaluation: every sample once, for any world size; integer counts and f64 sums.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "backends/communicator.h"
#include "engine/graph/executor.h"
#include "engine/train/class_counts.h"
#include "engine/train/train_observer.h"
#include "io/data/loader/batch_loader.h"

namespace engine {

struct EvaluatorOptions {
  std::int64_t batch = 64;  // most samples a forward pass
  io::Normalization normalization = io::Normalization::kUnit;
  DType dtype = DType::kF32;  // of activations
  Device device = {};         // a CUDA device: computes there, from the state in host memory
  Products products = Products::kF32;
  bool by_class = false;  // counts by class as well: run() then copies and allocates
};

// Samples of a forward pass over this set, of `most`: fewer where their outputs are many, or where
// the set has no more.
std::int64_t evaluation_batch(const io::Dataset& dataset,
                              std::int64_t most = EvaluatorOptions{}.batch);

class Evaluator {
 public:
  // Everything given outlives the evaluator. Allocates a copy of the state when the world has
  // several ranks.
  Evaluator(backends::Communicator& communicator, const Graph& graph, ModelState& state,
            ThreadPool& threads, const io::Dataset& dataset, const EvaluatorOptions& options);
  ~Evaluator();

  // Evaluates rank 0's model as it stands on this set; ranks take its chunks of samples in turn.
  // The cut into chunks depends on the set and the options only, and their losses are added in
  // their order: the report is the same, bit by bit, for any world size (with the same number of
  // threads and instruction set). Changes no byte of the state. Collective. `progress` in the
  // report is empty, `split` is "test". Errors of predicted numbers are sums of f64 by chunk, too.
  // A sample of one of the set's unknown_classes is wrong and has no loss.
  EvalReport run();
  // The same, but every rank gives it up within a chunk of its own once `stop_signal` is not 0 on
  // it: null then, on all ranks, and `stop` is the largest signal of them.
  std::optional<EvalReport> run_unless(const std::atomic<int>& stop_signal, int& stop);
  // Of the last run(), over all ranks and as exact; null unless they were wanted, and where numbers
  // are predicted.
  const ClassCounts* class_counts() const;

 private:
  int measure(const std::atomic<int>* stop_signal);  // the signal that ended it; 0: all was done
  EvalReport report() const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace engine
