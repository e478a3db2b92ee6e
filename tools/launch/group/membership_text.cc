// Formats which processes left and joined an elastic job.
#include "tools/launch/group/membership_text.h"

#include "io/base/text/escape_text.h"
#include "io/base/text/text_parts.h"

namespace tools {

std::vector<std::string> process_texts(const std::vector<backends::PeerInfo>& processes) {
  std::vector<std::string> texts;
  texts.reserve(processes.size());
  for (const backends::PeerInfo& process : processes)
    texts.push_back("process " + std::to_string(process.pid) + " on " +
                    base::escape_text(process.host));
  return texts;
}

std::string membership_text(const backends::View& view) {
  std::string changes;
  if (!view.left.empty()) changes = base::join_text(process_texts(view.left)) + " left";
  if (!view.joined.empty())
    changes +=
        (changes.empty() ? "" : "; ") + base::join_text(process_texts(view.joined)) + " joined";
  return std::to_string(view.world_size) + (view.world_size == 1 ? " rank" : " ranks") + " (" +
         (changes.empty() ? "the same" : changes) + ")";
}

}  // namespace tools
