// Implements parsers whose errors name the expected form.
#include "tools/launch/nodes/launch_values.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <set>

#include "io/base/files/io_error.h"
#include "io/base/text/text_parts.h"

namespace tools {
namespace {

std::optional<int> whole(const std::string& text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

int parse_whole(const std::string& text, int min, int max, const std::string& option) {
  const std::optional<int> value = whole(text);
  if (!value || *value < min || *value > max)
    throw io::ConfigError(option + " '" + text + "': expected a whole number from " +
                          std::to_string(min) + " to " + std::to_string(max));
  return *value;
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  for (const std::string& part : base::split_text(text, ','))
    if (const std::string_view name = base::trimmed(part); !name.empty()) parts.emplace_back(name);
  return parts;
}

std::vector<unsigned> parse_streams(const std::string& text, int local_world_size,
                                    const std::string& option) {
  const auto bad = [&](const std::string& why) {
    return io::ConfigError(option + " '" + text + "': " + why +
                           "; expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or " +
                           "such a number for some local ranks: 0:1,1:3");
  };
  std::vector<unsigned> masks(static_cast<std::size_t>(local_world_size), 0);
  if (text.empty()) return masks;
  if (text.find(':') == std::string::npos) {
    const std::optional<int> mask = whole(text);
    if (!mask || *mask < 0 || *mask > 3) throw bad("not a number from 0 to 3");
    std::fill(masks.begin(), masks.end(), static_cast<unsigned>(*mask));
    return masks;
  }
  std::set<int> seen;
  for (const std::string& part : split_list(text)) {
    const std::size_t colon = part.find(':');
    const std::optional<int> rank = whole(part.substr(0, colon));
    const std::optional<int> mask =
        colon == std::string::npos ? std::nullopt : whole(part.substr(colon + 1));
    if (!rank || !mask || *mask < 0 || *mask > 3) throw bad("'" + part + "' is not RANK:NUMBER");
    if (*rank < 0 || *rank >= local_world_size)
      throw bad("there is no local rank " + std::to_string(*rank) + " of " +
                std::to_string(local_world_size));
    if (!seen.insert(*rank).second) throw bad("local rank " + std::to_string(*rank) + " twice");
    masks[static_cast<std::size_t>(*rank)] = static_cast<unsigned>(*mask);
  }
  return masks;
}

std::vector<int> parse_rank_list(const std::string& text, int count, const std::string& option) {
  std::set<int> ranks;
  for (const std::string& part : split_list(text)) {
    const std::size_t dash = part.find('-');
    const std::optional<int> first = whole(part.substr(0, dash));
    const std::optional<int> last =
        dash == std::string::npos ? first : whole(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= count)
      throw io::ConfigError(option + " '" + text + "': '" + part +
                            "' does not name ranks from 0 to " + std::to_string(count - 1) +
                            "; expected a list such as 0,2-3");
    for (int r = *first; r <= *last; ++r) ranks.insert(r);
  }
  if (!ranks.empty()) return {ranks.begin(), ranks.end()};
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

NodeCount parse_node_count(const std::string& text, const std::string& option) {
  constexpr int kMaxNodes = 65536;
  const std::size_t colon = text.find(':');
  if (text == "0")
    throw io::ConfigError(option + " '" + text +
                          "': expected the number of nodes, 1 or more; the number of this node, "
                          "from 0, is --node-rank");
  const int min = parse_whole(text.substr(0, colon), 1, kMaxNodes, option);
  if (colon == std::string::npos) return {.max = min};
  const int max = parse_whole(text.substr(colon + 1), 1, kMaxNodes, option);
  if (max < min)
    throw io::ConfigError(option + " '" + text +
                          "': the first number is the greater one; expected N or MIN:MAX");
  if (max == min) return {.max = max};
  return {.min = min, .max = max};
}

}  // namespace tools
