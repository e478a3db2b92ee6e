// Describes which processes left and joined an elastic job.
#pragma once

#include <string>
#include <vector>

#include "backends/membership/membership.h"

namespace tools {

// Returns "process 42 on n7" for each.
std::vector<std::string> process_texts(const std::vector<backends::PeerInfo>& processes);

// Returns e.g. "3 ranks (process 42 on n7 left; process 43 on n8 joined)".
std::string membership_text(const backends::View& view);

}  // namespace tools
