// Shares the state from the memory of ranks that have trained with all ranks of a new group,
// without a file.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/communicator.h"
#include "engine/train/saving/train_state.h"
#include "io/checkpoint/checkpoint.h"

namespace engine {

// The state that a rank has kept of a run whose group has ended.
struct StateInMemory {
  // From capture_beside(); model and optimizer have stayed in place. None: this rank has not
  // trained.
  std::optional<io::Checkpoint> checkpoint;
  bool whole = false;      // TrainState::whole
  std::int64_t apart = 0;  // AveragingPolicy::samples_since_sync()
};

// Collective: every rank takes the state of the rank with the most progress; of several such ranks,
// one whose replica is synchronized if there is any, otherwise the lowest. If that replica is not
// synchronized, a rank that has trained keeps its own optimizer and running statistics, and
// parameters become the mean over these ranks, weighted by the samples that each has seen; so do
// the optimizer's states if the policy keeps them equal (PolicyCheckpoint::differences()). The
// averaging's memory that replicas share (anchor, outer momentum, sums in flight) is then that
// rank's on all of them, since it belongs to its counters. Returns the state taken, without its
// arrays; if no rank has any, returns nothing and changes nothing. If a collective fails,
// model and optimizer of a rank with one are unchanged. Throws io::DataError and ModelError as
// restore() does, and DesyncError if the received data differ from the sent data.
std::optional<io::Checkpoint> share_state(backends::Communicator& communicator,
                                          const StateInMemory& own, TrainState& state);

}  // namespace engine
