// Finds checkpoints in a run's folder.
#pragma once

#include <optional>
#include <string>

#include "io/checkpoint/checkpoint.h"

namespace io {

struct DescribedCheckpoint {
  std::string path;
  Checkpoint description;  // without the arrays' data
};
// Returns the checkpoint that find_newest_checkpoint() would return if the arrays' data, which are
// not read, were intact. Returns nothing if there is none. Throws the same.
std::optional<DescribedCheckpoint> find_newest_description(const std::string& directory,
                                                           const std::string& run_id = "");

}  // namespace io
