// What restarts mean for `engine train`: it goes on from its snapshots, or begins anew.
#pragma once

#include <string>
#include <vector>

#include "tools/launch/nodes/launch_options.h"

namespace tools {

struct RestartResume {
  std::vector<std::string> more;  // arguments to add to the command
  std::string notice;             // one line for the user; "" where there is nothing to say
};

// With --max-restarts and `train` as the command: --resume auto where it saves and nobody (option,
// variable, --env or configuration file) said how to resume. A command line that train would refuse
// is left to it.
RestartResume resume_after_restart(const LaunchOptions& options);

}  // namespace tools
