// Everything that a run must remember to continue bit by bit, to and from a checkpoint.
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

// What happens to plain BatchNorm's running statistics where replicas come together.
enum class BufferMode {
  kLocal,    // nothing: each rank keeps those of its own samples
  kEqual,    // nothing: steps leave the same on all ranks
  kRank0,    // all take rank 0's
  kAverage,  // all take the mean
};
constexpr bool brings_together(BufferMode mode) {
  return mode == BufferMode::kRank0 || mode == BufferMode::kAverage;
}

// What is still to be evaluated after the step of `progress`, where a stop has cut an evaluation
// off.
enum class PendingEvaluation { kNone, kAll, kAverage };  // kAverage: of the weights' average alone

// The parts of a running training; owned by whoever assembled it.
struct TrainState {
  ModelState& model;
  Optimizer& optimizer;
  AveragingPolicy& policy;
  StateHome& home;  // of model, optimizer and control; the functions below look under a HostView
  TrainProgress progress;
  Device device;
  std::uint64_t seed = 0;
  std::int64_t global_batch = 0, dataset_size = 0;
  BufferMode buffers = BufferMode::kLocal;
  std::int64_t steps_per_epoch = 0;
  LossScaleRule loss_scale = {};
  StepControl* control = nullptr;  // of the loss scale; null: there is none
  struct Restorable {
    // Whether a snapshot of another kind of optimizer may be restored; its state then starts anew.
    bool other_optimizer = false;
    // Whether one with another global batch may be restored in the middle of an epoch: the rest of
    // the epoch is cut into steps of this one.
    bool other_batch = false;
  };
  Restorable may_restore = {};
  // With io::Shard::kFile: the ranks that divide an epoch among them; else 0.
  int file_ranks = 0;
  // How they have divided the epoch of `progress`; empty: as one division by file_ranks.
  std::vector<io::Division> divisions = {};
  std::vector<Stateful*> parts = {};
  // Where each rank updates a share of the parameters and has the optimizer's states for that share
  // alone; null: all have all of them.
  const OptimizerShards* shares = nullptr;
  PendingEvaluation pending_evaluation = PendingEvaluation::kNone;
  bool whole = true;  // false: a failure has left it between two steps
};

// Brings replicas together: parameters by the policy, running statistics by the mode. Collective.
void synchronize(backends::Communicator& communicator, TrainState& state);

// Into a copy that was begun, this replica alone: progress, parameters and buffers. No
// communication.
void capture_model(const TrainState& state, int world_size, StateCopy& copy);

// The same, without arrays of the model and the optimizer: what else belongs to this replica's
// state.
void capture_beside(const TrainState& state, int world_size, StateCopy& copy);

// Into a copy that was begun: all of this replica's state as it stands, as a world of one would
// save it. No communication. REQUIRES: the optimizer is not in shares.
void capture_own(const TrainState& state, int world_size, StateCopy& copy);

// Into a copy that was begun: rank 0's snapshot, plus what differs between ranks (running
// statistics; optimizer states where the policy keeps them local) as arrays "rankR/...".
// Collective; `copy` is filled on rank 0 only. Synchronizes first.
void capture(backends::Communicator& communicator, TrainState& state, StateCopy& copy);

// Puts a snapshot back. Each rank calls it with the same checkpoint; `source` names the file in
// messages. Where the world has another size than at the save, every rank takes rank 0's local
// state, with file_ranks these divide the samples that are left of the epoch, and notice() says so.
// Throws io::DataError (does not fit the model) and ModelError (another batch size, size of the
// data set, seed or kind of io::Shard in the middle of an epoch).
void restore(const io::Checkpoint& checkpoint, const std::string& source, int rank, int world_size,
             TrainState& state, const std::function<void(const std::string&)>& notice);
// The same for what capture_beside() has taken.
void restore_beside(const io::Checkpoint& checkpoint, const std::string& source, int rank,
                    int world_size, TrainState& state,
                    const std::function<void(const std::string&)>& notice);

}  // namespace engine
