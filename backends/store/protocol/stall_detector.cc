// Finds the ranks that others wait for.
#include "backends/store/protocol/stall_detector.h"

#include <algorithm>
#include <cstdio>

namespace backends {

std::string stalled_time_text(std::int64_t ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(ms) / 1000);
  return text;
}

std::string short_ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 8;
  std::string text = "rank ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > kMost) text += " and " + std::to_string(ranks.size() - kMost) + " more";
  return text;
}

std::optional<StallDetector::Stall> StallDetector::check(const std::vector<Member>& members) {
  if (after_ms_ == 0 || members.empty()) return std::nullopt;
  const Member& longest = *std::ranges::max_element(
      members, {}, [](const Member& member) { return member.progress.waiting_ms; });
  const std::int64_t waited = longest.progress.waiting_ms;
  if (waited < after_ms_) {
    next_ms_ = 0;
    return std::nullopt;
  }
  if (waited < next_ms_) return std::nullopt;
  next_ms_ = 2 * waited;

  struct Place {  // ranks in the same call, or in no call with the same activity
    bool waits;
    std::string what;
    std::vector<int> ranks;
  };
  std::vector<Place> places;
  std::string links;
  std::set<int> silent;
  for (const Member& member : members) {
    const bool waits = !member.progress.call.empty();
    const std::string& what = waits ? member.progress.call : member.activity;
    const auto same = [&](const Place& place) {
      return place.waits == waits && place.what == what;
    };
    auto place = std::ranges::find_if(places, same);
    if (place == places.end()) place = places.insert(place, {waits, what, {}});
    place->ranks.push_back(member.rank);
    if (member.progress.links.empty()) continue;
    links += "; rank " + std::to_string(member.rank) + " has " + member.progress.links;
    silent.insert(member.rank);
  }
  // The others wait for ranks that are in no collective, or else in another one than most ranks.
  std::ranges::stable_sort(places, [](const Place& a, const Place& b) {
    return a.waits != b.waits ? a.waits : a.ranks.size() > b.ranks.size();
  });
  std::string text = "no progress for " + stalled_time_text(waited) + ": ";
  for (const Place& place : places) {
    text += (&place == &places.front() ? "" : "; ") + short_ranks_text(place.ranks);
    text += place.waits          ? " in " + place.what
            : place.what.empty() ? " in no collective"
                                 : " in no collective (" + place.what + ")";
  }
  const int culprit = places.back().ranks.front();
  if (places.size() == 1 && members.size() > 1 && links.empty()) text += ", and no data arrives";
  // If all ranks are in the same call, the links are the cause; otherwise the links are silent
  // because of the wait.
  std::set<int> concerned = places.size() == 1 ? silent : std::set<int>{};
  concerned.insert({culprit, longest.rank});
  return Stall{text + links, culprit, concerned};
}

}  // namespace backends
