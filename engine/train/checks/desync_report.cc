// Formats the report of a comparison as one line.
#include "engine/train/checks/desync_report.h"

#include <algorithm>

namespace engine {
namespace {

constexpr std::size_t kMaxNames = 5, kMaxListedRanks = 8;

std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMaxListedRanks); ++i)
    text += (i ? ", " : "") + std::to_string(ranks[i]);
  return ranks.size() > kMaxListedRanks
             ? text + " and " + std::to_string(ranks.size() - kMaxListedRanks) + " more"
             : text;
}

}  // namespace

std::string_view to_string(OnDesync action) {
  return action == OnDesync::kAbort ? "abort" : action == OnDesync::kWarn ? "warn" : "repair";
}

std::string to_string(const DesyncReport& report, int world_size) {
  std::string text = "desync after step " + std::to_string(report.step) + ": " +
                     std::to_string(report.tensors.size()) + " of " +
                     std::to_string(report.compared) + " tensors differ: ";
  const std::size_t named = std::min(report.tensors.size(), kMaxNames);
  for (std::size_t i = 0; i < named; ++i)
    text += (i ? ", " : "") + report.tensors[i].name + " on " + rank_list(report.tensors[i].ranks);
  if (report.tensors.size() > named)
    text += ", and " + std::to_string(report.tensors.size() - named) + " more";
  text += report.tie ? "; no majority among " + std::to_string(world_size) +
                           " ranks (a tie): compared with rank 0"
                     : "; compared with the majority of " + std::to_string(world_size) + " ranks";
  const std::string after = " (equal after step " + std::to_string(report.last_good) + ")";
  if (report.first_bad <= report.last_good)
    text += "; already so before the first step of this run";
  else
    text += report.first_bad == report.last_good + 1
                ? "; first bad step " + std::to_string(report.first_bad) + after
                : "; first bad step in " + std::to_string(report.last_good + 1) + " to " +
                      std::to_string(report.first_bad) + after;
  if (report.repaired)
    text += report.tie ? "; repaired from rank 0" : "; repaired from the majority";
  return text;
}

}  // namespace engine
