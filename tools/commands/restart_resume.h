// Determines if a restarted `engine train` continues from its checkpoints or starts over.
#pragma once

#include <string>
#include <vector>

#include "tools/launch/nodes/launch_options.h"

namespace tools {

struct RestartResume {
  std::vector<std::string> more;  // arguments to add to the command
  std::string notice;             // one line for the user, or ""
};

// For --max-restarts with `train` as the command: adds --resume auto if it saves and no source
// (option, variable, --env or configuration file) sets resume. A command line that train would
// reject is not changed.
RestartResume resume_after_restart(const LaunchOptions& options);

}  // namespace tools
