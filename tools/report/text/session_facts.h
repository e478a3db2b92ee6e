// The facts of a training session as numbers, for printing at the start, for the record and for
// displays.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/averaging/policies/averaging_plan.h"
#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "engine/optim/learning_rate.h"
#include "io/data/order/epoch_order.h"
#include "io/data/order/sampler.h"

namespace tools {

struct ModelFacts {
  std::string name;
  std::int64_t parameters = 0;  // elements
  engine::DType dtype = engine::DType::kF32;
  // With statistics over all ranks; none: not requested.
  std::optional<int> synchronized_layers = {};
  std::int64_t tensors = 0, frozen_tensors = 0, frozen_parameters = 0;
  std::int64_t frozen_layers = 0;  // layers whose running statistics do not change
};

struct DataFacts {
  std::string name;
  std::int64_t train = 0, test = 0;  // samples
  std::string digest;   // digest of the training data; "" if nothing is saved or resumed
  std::string columns;  // how the columns of a table are used; "" without a table
  std::vector<std::string> warnings;                 // from the reader
  std::optional<io::PartitionCheck> partition = {};  // with --check-sampler: its result
  std::vector<io::FileShard> shards = {};            // with --shard file: each rank's samples
  std::string on_device = {};  // the samples on this rank's device, or why none are there; or ""
};

// The distribution of a step's samples.
struct BatchFacts {
  std::int64_t global = 0;
  bool even = false;  // every rank and micro-batch has equally many
  int devices = 1;    // per process
  std::int64_t micro_batches = 1;
  std::vector<std::int64_t> shares;  // share of each rank, in the first step of an epoch
  std::int64_t steps_per_epoch = 1;
};

struct RankFacts {
  int count = 1;
  int full_count = 0;    // for an elastic job whose batch scales with its ranks; else 0
  std::string computes;  // "2 threads on cpu (avx2)": this rank
  std::string bound_to;  // the CPUs of this rank; "": it is not bound
  std::string backend, backend_reason;
  std::string processors;   // a notice if ranks compute with different instruction sets, else ""
  std::string translation;  // a notice if this rank's device has to translate kernels, else ""
  engine::Device device;    // of this rank

  // Steps run on a CUDA device, asynchronously to the host.
  bool on_device() const { return device.kind == engine::Device::Kind::kCuda; }
};

struct AveragingFacts {
  std::string text;                                // "params every 8"
  std::optional<int> canonical_shards = {};        // shards of gradients summed in canonical order
  std::optional<engine::AveragingPlan> plan = {};  // for parameters
};

struct UpdateFacts {
  std::string optimizer, details;  // details: groups of parameters and their updates, or ""
  double lr = 0;
  std::string lr_arithmetic;  // " (0.1 x 2 ranks)", or ""
  engine::LearningRate::Schedule schedule = engine::LearningRate::Schedule::kConstant;
};

// The memory of one rank, and what its plan recomputes, in bytes and layers.
struct MemoryFacts {
  std::uint64_t limit = 0;      // what is free if it differs from `requested`
  std::uint64_t requested = 0;  // by --memory SIZE, or nine tenths of what is free by auto
  std::uint64_t total = 0;
  // Parts of `total`.
  std::uint64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0, averaging = 0,
                saving = 0;
  std::uint64_t kept = 0, recomputed = 0;  // values that backward finds, and computes again
  std::int64_t segments = 0, recomputed_layers = 0, layers = 0;
  double added_flops = 0;          // as a part of those of a step
  std::int64_t largest_batch = 0;  // per device and micro-batch
};

// The source of the state.
struct StartFacts {
  enum class Source { kNone, kSeed, kWeights, kCheckpoint, kMemory };
  Source source = Source::kNone;           // kNone: it is not loaded yet
  std::string path = {};                   // for weights or a checkpoint
  std::vector<std::string> left_out = {};  // for weights
  std::int64_t step = 0;
};

// The length of the run, and if part of it is left.
struct LengthFacts {
  std::int64_t total_steps = 0, epochs = 0;  // at the end: steps, and epochs started or completed
  bool by_steps = false;                     // --steps determines the length, not --epochs
  std::int64_t asked = 0;                    // steps or epochs
  std::int64_t done = 0;                     // same unit, when the state was loaded
  enum class Left { kSteps, kAverage, kEvaluation, kNothing, kNothingForPatience };
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
  std::optional<MemoryFacts> memory = {};  // of this rank, if --memory limits it
  std::string capture;  // how steps run on a CUDA device, or why they are not captured; else ""

  bool is_carried_over() const { return start.source == StartFacts::Source::kMemory; }
  // Returns true if no step and no evaluation is left.
  bool is_complete() const {
    return length.left == LengthFacts::Left::kNothing ||
           length.left == LengthFacts::Left::kNothingForPatience;
  }
};

}  // namespace tools
