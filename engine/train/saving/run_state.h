// The state that a run needs to continue bit by bit.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/averaging/policies/averaging_policy.h"
#include "engine/graph/model_state.h"
#include "engine/optim/optimizer.h"
#include "engine/train/saving/stateful.h"
#include "engine/train/saving/train_progress.h"
#include "io/data/order/sampler.h"

namespace engine {

// The handling of plain BatchNorm's running statistics when replicas are synchronized.
enum class BufferMode {
  kLocal,    // unchanged: each rank keeps those of its own samples
  kEqual,    // unchanged: steps produce the same on all ranks
  kRank0,    // all take rank 0's
  kAverage,  // all take the mean
};
constexpr bool synchronizes_statistics(BufferMode mode) {
  return mode == BufferMode::kRank0 || mode == BufferMode::kAverage;
}

// The evaluations that are pending after the step of `progress`, because a stop has aborted one.
enum class PendingEvaluation { kNone, kAll, kAverage };  // kAverage: only of the weights' average

// The parts of a running training run; their owner is the code that assembled it.
struct TrainState {
  ModelState& model;
  Optimizer& optimizer;
  AveragingPolicy& policy;
  StateHome& home;  // home of model, optimizer and control; the functions below access them under a
                    // HostView
  TrainProgress progress;
  Device device;
  std::uint64_t seed = 0;
  std::int64_t global_batch = 0, dataset_size = 0;
  BufferMode buffers = BufferMode::kLocal;
  std::int64_t steps_per_epoch = 0;
  LossScaleRule loss_scale = {};
  StepControl* control = nullptr;  // of the loss scale; null: there is none
  struct Restorable {
    // Allows a checkpoint of another kind of optimizer, whose state then starts over.
    bool other_optimizer = false;
    // Allows a checkpoint with another global batch in the middle of an epoch: the rest of the
    // epoch is divided into steps of this one.
    bool other_batch = false;
  };
  Restorable may_restore = {};
  struct Ranks {
    int of_files = 0;  // with io::Shard::kFile: the ranks that divide an epoch among them; else 0
    std::vector<int> first_of_island = {};  // by rank: the first of its island; empty: no islands
  };
  Ranks ranks = {};
  // The divisions of the epoch of `progress`; empty: one division by ranks.of_files.
  std::vector<io::Division> divisions = {};
  std::vector<Stateful*> parts = {};
  // Set if each rank updates a shard of the parameters and has the optimizer's states only for that
  // shard; null: all ranks have all states.
  const OptimizerShards* shares = nullptr;
  PendingEvaluation pending_evaluation = PendingEvaluation::kNone;
  bool whole = true;  // false: a failure has left it between two steps
};

}  // namespace engine
