// What a training session is made of and where it stands, as numbers: what is printed at its start,
// recorded and shown is made from these.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/averaging/policies/averaging_plan.h"
#include "engine/core/dtype.h"
#include "engine/optim/learning_rate.h"
#include "io/data/order/epoch_order.h"
#include "io/data/order/sampler.h"

namespace tools {

struct ModelFacts {
  std::string name;
  std::int64_t parameters = 0;  // elements
  engine::DType dtype = engine::DType::kF32;
  std::optional<int> synchronized_layers =
      {};  // with statistics over all ranks; none: not asked for
  std::int64_t tensors = 0, frozen_tensors = 0, frozen_parameters = 0;
  std::int64_t frozen_layers = 0;  // whose running statistics stay as they are
};

struct DataFacts {
  std::string name;
  std::int64_t train = 0, test = 0;   // samples
  std::string digest;                 // of the training data; "" where nothing is saved or resumed
  std::string columns;                // what a table's columns became; "" where there is none
  std::vector<std::string> warnings;  // of the reader
  std::optional<io::PartitionCheck> partition = {};  // with --check-sampler: what it has proved
  std::vector<io::FileShard> shards = {};            // with --shard file: each rank's samples
};

// How a step's samples are shared out.
struct BatchFacts {
  std::int64_t global = 0;
  bool even = false;  // every rank and micro-batch has as many
  int devices = 1;    // of a process
  std::int64_t micro_batches = 1;
  std::vector<std::int64_t> shares;  // of each rank, in the first step of an epoch
  std::int64_t steps_per_epoch = 1;
};

struct RankFacts {
  int count = 1;
  int full_count = 0;    // of an elastic job whose batch scales with its ranks; 0: of no such
  std::string computes;  // "2 threads on cpu (avx2)": this rank
  std::string bound_to;  // the CPUs of this rank; "": it is not bound
  std::string backend, backend_reason;
  std::string processors;   // a notice where ranks compute with different instruction sets, else ""
  std::string translation;  // a notice where this rank's device has to translate kernels, else ""
  bool on_device = false;   // steps run on a CUDA device, beside the host
};

struct AveragingFacts {
  std::string text;                                // "params every 8"
  std::optional<int> canonical_shards = {};        // of gradients summed in canonical order
  std::optional<engine::AveragingPlan> plan = {};  // of parameters
};

struct UpdateFacts {
  std::string optimizer, details;  // details: which parameters it updates how, or ""
  double lr = 0;
  std::string lr_arithmetic;  // " (0.1 x 2 ranks)", or ""
  engine::LearningRate::Schedule schedule = engine::LearningRate::Schedule::kConstant;
};

// Where the state came from.
struct StartFacts {
  enum class Source { kNone, kSeed, kWeights, kSnapshot, kMemory };
  Source source = Source::kNone;           // kNone: it is not loaded yet
  std::string path = {};                   // of weights or a snapshot
  std::vector<std::string> left_out = {};  // of weights
  std::int64_t step = 0;
};

// How long the run is, and whether something of it is left.
struct LengthFacts {
  std::int64_t total_steps = 0, epochs = 0;  // global steps, and epochs begun or done, at the end
  bool by_steps = false;                     // --steps says how long it is, not --epochs
  std::int64_t asked = 0;                    // steps or epochs
  std::int64_t done = 0;                     // the same, when the state was loaded
  enum class Left { kSteps, kEvaluation, kNothing, kNothingForPatience };
  Left left = Left::kSteps;
  std::int64_t done_steps = 0;
  std::string why_stopped = {};  // with kNothingForPatience
  std::int64_t patience = 0;     // with kNothingForPatience: evaluations
};

struct SessionFacts {
  ModelFacts model;
  DataFacts data;
  BatchFacts batch;
  RankFacts ranks;
  AveragingFacts averaging;
  UpdateFacts update;
  StartFacts start;
  LengthFacts length;
  std::uint64_t seed = 0;
  std::string capture;  // how steps run on a CUDA device, or why they are not captured; else ""

  bool is_carried_over() const { return start.source == StartFacts::Source::kMemory; }
  // No step and no evaluation is left.
  bool is_complete() const {
    return length.left == LengthFacts::Left::kNothing ||
           length.left == LengthFacts::Left::kNothingForPatience;
  }
};

}  // namespace tools
