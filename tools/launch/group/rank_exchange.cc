// Implements the gathering of texts, and tournament rounds.
#include "tools/launch/group/rank_exchange.h"

#include <algorithm>
#include <cstdint>

namespace tools {

std::vector<std::string> gather_texts(backends::Communicator& communicator,
                                      const std::string& own) {
  const auto ranks = static_cast<std::size_t>(communicator.world_size());
  const std::uint64_t size = own.size();
  std::vector<std::uint64_t> sizes(ranks);
  communicator.all_gather(&size, sizeof size, sizes.data());
  const std::size_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::string> texts(ranks);
  if (longest == 0) return texts;
  std::string padded = own;
  padded.resize(longest);
  std::string all(longest * ranks, '\0');
  communicator.all_gather(padded.data(), longest, all.data());
  for (std::size_t r = 0; r < ranks; ++r) texts[r] = all.substr(r * longest, sizes[r]);
  return texts;
}

std::vector<std::vector<std::pair<int, int>>> pair_rounds(int ranks) {
  const int seats = ranks + ranks % 2;  // with an odd number, one rank is idle in each round
  std::vector<std::vector<std::pair<int, int>>> rounds;
  for (int round = 0; round + 1 < seats; ++round) {
    std::vector<std::pair<int, int>> pairs;
    // The last seat is fixed; the others are on a circle that rotates by one each round.
    const auto seat = [&](int i) { return i == seats - 1 ? seats - 1 : (round + i) % (seats - 1); };
    for (int i = 0; i < seats / 2; ++i) {
      const int a = i == 0 ? seats - 1 : seat(i), b = i == 0 ? seat(0) : seat(seats - 1 - i);
      if (std::max(a, b) < ranks) pairs.emplace_back(std::min(a, b), std::max(a, b));
    }
    rounds.push_back(std::move(pairs));
  }
  return rounds;
}

}  // namespace tools
