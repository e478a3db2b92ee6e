// Determines the checkpoint from which a start of `engine train` continues.
#pragma once

#include <optional>
#include <string>

#include "io/checkpoint/checkpoint_directory.h"
#include "tools/options/table/resume.h"

namespace tools {

// Returns the checkpoint that engine::CheckpointManager::resume() would load if the arrays' data,
// which are not read, are intact: the one that `resume` names, the newest of the folder that it
// names, or with kOwnFolder the newest of run `run_id` ("": the run in run.json, if there is one)
// in `own_folder`. Returns nothing if the start does not resume, or its own folder has none. Throws
// as io::find_newest_description() and io::load_description() do.
std::optional<io::DescribedCheckpoint> resume_source(const Resume& resume,
                                                     const std::string& own_folder,
                                                     const std::string& run_id = "");

}  // namespace tools
