// Runs what `engine train` does instead of training: --print-config, --dry-run, --lr-find.
#pragma once

#include <optional>
#include <string>

#include "tools/options/table/run_config.h"

namespace CLI {
class App;
}

namespace tools {

struct Instead {
  bool print_config = false, dry_run = false, lr_find = false;
  std::string rates = {};  // for --lr-find
};

void add_instead(CLI::App& app, Instead& instead);

// Returns the exit code; none if a training run is requested. Throws as a training run does.
std::optional<int> run_instead(const Instead& instead, const RunConfig& config);

}  // namespace tools
