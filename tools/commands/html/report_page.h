// `engine report`: one page about one run or several, for a browser, without any other file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/commands/html/run_history.h"
#include "tools/commands/html/run_predictions.h"

namespace tools {

struct PageOptions {
  std::optional<RunPredictions> judged = {};  // of a single run
  int refresh_seconds = 0;                    // a browser asks for the page again; 0: it does not
};

std::string report_html(const std::vector<RunHistory>& runs, const PageOptions& options);

}  // namespace tools
