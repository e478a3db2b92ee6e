// Replaces `--sync auto` by a policy, before a run begins.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/group.h"
#include "tools/options/table/run_config.h"
#include "tools/run/data/session_data.h"

namespace tools {

struct ChosenSync {
  RunConfig config;  // with the chosen options, as if they had been given
  // The data set that was loaded to measure a step, for DataOptions::given; null if none was loaded
  // or if it is coded as --init-from requires.
  std::shared_ptr<LoadedData> data;
  std::vector<std::string> lines;  // for the user, on every rank; empty: --sync is not auto
};

// Collective; rank 0 decides. Returns the configuration as it is if --sync is not auto. A run that
// is resumed keeps the policy that it has recorded. Otherwise measures steps of a session that is
// discarded, and links between hosts. `data`: already loaded; or null. Throws as TrainSession does.
ChosenSync choose_sync(const RunConfig& config, backends::Group& group,
                       std::shared_ptr<LoadedData> data = nullptr);

}  // namespace tools
