// A rank's run as `engine train` shows it: on the console, in logs, and to those who watch it.
#pragma once

#include <optional>

#include "backends/group.h"
#include "tools/run/rank/rank_run.h"

namespace tools {

// Collective. Runs the training and returns the exit code; nothing: it was paused, and goes on in
// another group. RankRunOptions::on_folder is this function's own.
std::optional<int> run_on_console(const RankRunOptions& options, backends::Group& group);

}  // namespace tools
