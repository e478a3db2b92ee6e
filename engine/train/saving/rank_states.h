// The state of single ranks in a checkpoint of all: arrays "rankR/...", with rank 0's state in the
// other sections.
#pragma once

#include <functional>
#include <string>

#include "backends/communicator.h"
#include "engine/train/saving/run_state.h"
#include "engine/train/saving/state_copy.h"
#include "io/checkpoint/checkpoint.h"

namespace engine {

// Returns "NAME/", the prefix of the names of a policy's arrays.
std::string policy_prefix(const PolicyState& state);

// Adds what may differ between ranks, on rank 0, to a copy that holds rank 0's state. Collective.
void capture_rank_states(backends::Communicator& communicator, TrainState& state, StateCopy& copy);

// Restores this rank's state, after rank 0's has been restored. A rank takes the optimizer state of
// the first of the ranks that average gradients in the next step, and rank 0's whole state if
// replicas without averaging become one; notice(), which may be empty, is called if the state of
// other ranks is thereby dropped. REQUIRES: the checkpoint has the world size of this run; the
// policy's counters are restored.
void restore_rank_states(const io::Checkpoint& checkpoint, const std::string& source, int rank,
                         TrainState& state, const std::function<void(const std::string&)>& notice);

}  // namespace engine
