// From the memory of ranks that have trained to all ranks of a new group, without a file.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/communicator.h"
#include "engine/train/saving/train_state.h"
#include "io/checkpoint/checkpoint.h"

namespace engine {

// What a rank has kept of a training whose group is gone.
struct StateImage {
  // By capture_beside(), while model and optimizer have stayed where they are; none: this rank has
  // not trained.
  std::optional<io::Checkpoint> state;
  bool whole = false;      // TrainState::whole
  std::int64_t apart = 0;  // AveragingPolicy::samples_since_sync()
};

// Collective: every rank takes the state of the rank that has come furthest, of those where
// replicas are together if there are any, else of the lowest. Where they are nowhere together, a
// rank that has trained keeps its own state, but for its progress, and parameters become the mean
// over these ranks, weighted by the samples that each has seen. Returns what was taken, without its
// arrays; nothing, and nothing has changed, where nobody has an image. A collective that fails
// leaves model and optimizer of a rank with an image as they were. Throws io::DataError and
// ModelError as restore() does, and DesyncError where something else arrived than was sent.
std::optional<io::Checkpoint> share_state(backends::Communicator& communicator,
                                          const StateImage& own, TrainState& state);

}  // namespace engine
