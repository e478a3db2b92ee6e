// The page of `engine report`: one self-contained HTML file about one or several runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/html/run_history.h"
#include "tools/html/run_predictions.h"

namespace tools {

struct PageOptions {
  std::optional<RunPredictions> predictions = {};  // for a single run
  int refresh_seconds = 0;  // interval at which a browser reloads the page; 0: never
};

std::string report_html(const std::vector<RunHistory>& runs, const PageOptions& options);

}  // namespace tools
