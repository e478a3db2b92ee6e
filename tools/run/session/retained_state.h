// The state that a rank keeps in memory when the ranks of its group change.
#pragma once

#include <memory>
#include <optional>

#include "engine/train/saving/checkpoint_writer.h"
#include "engine/train/saving/shared_state.h"
#include "tools/run/data/session_data.h"

namespace tools {

struct SessionModel;

// Passed from one session to the next.
struct RetainedState {
  std::shared_ptr<LoadedData> data;
  engine::StateInMemory state;
  std::shared_ptr<engine::CheckpointWriter> writer;  // may be writing
  std::shared_ptr<SessionModel> model;  // with the parameters of that state, if there is one
  std::optional<int> place;             // on this host (place_on_host()), which keeps the device
};

}  // namespace tools
