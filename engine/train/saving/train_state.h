// The state that a run needs to continue bit by bit, and its conversion to and from a checkpoint.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "engine/averaging/policies/averaging_policy.h"
#include "engine/graph/model_state.h"
#include "engine/optim/optimizer.h"
#include "engine/train/saving/state_copy.h"
#include "engine/train/saving/stateful.h"
#include "engine/train/saving/train_progress.h"
#include "io/checkpoint/checkpoint.h"
#include "io/data/order/sampler.h"

namespace engine {

// The handling of plain BatchNorm's running statistics when replicas are synchronized.
enum class BufferMode {
  kLocal,    // unchanged: each rank keeps those of its own samples
  kEqual,    // unchanged: steps produce the same on all ranks
  kRank0,    // all take rank 0's
  kAverage,  // all take the mean
};
constexpr bool brings_together(BufferMode mode) {
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
  // With io::Shard::kFile: the ranks that divide an epoch among them; else 0.
  int file_ranks = 0;
  // The divisions of the epoch of `progress`; empty: one division by file_ranks.
  std::vector<io::Division> divisions = {};
  std::vector<Stateful*> parts = {};
  // Set if each rank updates a shard of the parameters and has the optimizer's states only for that
  // shard; null: all ranks have all states.
  const OptimizerShards* shares = nullptr;
  // By rank: the first rank of its island. Empty without islands.
  std::vector<int> first_of_island = {};
  PendingEvaluation pending_evaluation = PendingEvaluation::kNone;
  bool whole = true;  // false: a failure has left it between two steps
};

// Synchronizes the replicas: parameters by the policy, running statistics by the mode. Collective.
void synchronize(backends::Communicator& communicator, TrainState& state);

// Captures this replica alone into a copy that was started: progress, parameters and buffers. No
// communication.
void capture_model(const TrainState& state, int world_size, StateCopy& copy);

// The same without arrays of the model and the optimizer: the rest of this replica's state.
void capture_beside(const TrainState& state, int world_size, StateCopy& copy);

// Captures this replica's whole current state into a copy that was started, as a world of one would
// save it. No communication. REQUIRES: the optimizer is not sharded.
void capture_own(const TrainState& state, int world_size, StateCopy& copy);

// Captures into a copy that was started: rank 0's checkpoint, plus the state that differs between
// ranks (running statistics; optimizer states if the policy keeps them local) as arrays
// "rankR/...". Collective; `copy` is filled on rank 0 only. Synchronizes first.
void capture(backends::Communicator& communicator, TrainState& state, StateCopy& copy);

// Restores a checkpoint. Each rank calls it with the same checkpoint; `source` names the file in
// messages. If the world size differs from that of the save, every rank takes rank 0's local state
// (of the averaging's memory of single ranks, rank 0 alone takes that of a rank that saved alone),
// with file_ranks these divide the remaining samples of the epoch, and notice() is called. Throws
// io::DataError (does not match the model) and ModelError (another batch size, size of the data
// set, seed or kind of io::Shard in the middle of an epoch).
void restore(const io::Checkpoint& checkpoint, const std::string& source, int rank, int world_size,
             TrainState& state, const std::function<void(const std::string&)>& notice);
// The same for the result of capture_beside().
void restore_beside(const io::Checkpoint& checkpoint, const std::string& source, int rank,
                    int world_size, TrainState& state,
                    const std::function<void(const std::string&)>& notice);

}  // namespace engine
