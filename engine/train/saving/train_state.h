// Converts the state of a run to and from a checkpoint.
#pragma once

#include <functional>
#include <string>

#include "backends/communicator.h"
#include "engine/train/saving/run_state.h"
#include "engine/train/saving/state_copy.h"
#include "io/checkpoint/checkpoint.h"

namespace engine {

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
// with ranks.of_files these divide the remaining samples of the epoch, and notice() is called.
// Throws io::DataError (does not match the model) and ModelError (another batch size, size of the
// data set, seed or kind of io::Shard in the middle of an epoch).
void restore(const io::Checkpoint& checkpoint, const std::string& source, int rank, int world_size,
             TrainState& state, const std::function<void(const std::string&)>& notice);
// The same for the result of capture_beside().
void restore_beside(const io::Checkpoint& checkpoint, const std::string& source, int rank,
                    int world_size, TrainState& state,
                    const std::function<void(const std::string&)>& notice);

}  // namespace engine
