// Computes the edit distance with swaps, in three rolling rows of the usual table.
#include "io/base/text/nearest.h"

#include <algorithm>
#include <cstddef>

#include "io/base/text/text_parts.h"

namespace base {
namespace {

std::size_t typing_errors(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] != b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongestName = 64;  // the time is proportional to the product of the
                                            // lengths
  if (name.size() > kLongestName) return "";
  const std::string wanted = with_dashes(name);
  for (const std::string& candidate : candidates)
    if (wanted.size() >= 3 && with_dashes(candidate).starts_with(wanted)) return candidate;
  std::string best;
  std::size_t fewest = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t errors = typing_errors(wanted, with_dashes(candidate));
    if (errors < fewest) {
      fewest = errors;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates,
                         std::string_view mark) {
  const std::string nearest = nearest_name(name, candidates);
  return nearest.empty() ? "" : ": did you mean '" + std::string(mark) + nearest + "'?";
}

}  // namespace base
