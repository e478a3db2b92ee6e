// Who left an elastic job and who came, in words.
#pragma once

#include <string>
#include <vector>

#include "backends/membership/membership.h"

namespace tools {

// "process 42 on n7" of each.
std::vector<std::string> process_texts(const std::vector<backends::PeerInfo>& processes);

// "3 ranks (process 42 on n7 left; process 43 on n8 joined)"
std::string membership_text(const backends::View& view);

}  // namespace tools
