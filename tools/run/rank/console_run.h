// Runs a rank for `engine train`, with output on the console, in logs, and for observers.
#pragma once

#include <optional>

#include "backends/group.h"
#include "tools/run/rank/rank_run.h"

namespace tools {

// Collective. Runs the training and returns the exit code; nothing if it was paused, and continues
// in another group. This function sets RankRunOptions::on_folder.
std::optional<int> run_on_console(const RankRunOptions& options, backends::Group& group);

}  // namespace tools
