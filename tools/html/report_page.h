// `engine report`: one page about one run or several, for a browser, without any other file.
#pragma once

#include <string>
#include <vector>

#include "tools/html/run_history.h"

namespace tools {

std::string report_html(const std::vector<RunHistory>& runs);

}  // namespace tools
