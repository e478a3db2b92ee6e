// Draws the pairs of ranks that average their parameters with each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace engine {

// A random perfect matching for each round. It depends only on the seed, the round and the number
// of ranks, so all ranks and resumed runs draw the same ones.
class GossipPairs {
 public:
  // REQUIRES: ranks >= 1.
  GossipPairs(std::uint64_t seed, int ranks);

  // Returns the partner of each rank, valid until the next call; a rank that pauses, one if their
  // number is odd, is its own partner. Does not allocate.
  std::span<const int> draw(std::int64_t round);

 private:
  std::uint64_t seed_;
  std::vector<int> order_, partners_;
};

// The rounds of a tournament in which every rank is paired with each other rank once.
int tournament_rounds(int ranks);
// Returns the partner of `rank` in a round; `rank` itself if it pauses.
int tournament_partner(int ranks, int round, int rank);

// Connects a rank with each other one: connect({both ranks, ascending}). Returns the results by
// rank. The rounds of a tournament: a rank waits only for ranks that are in an earlier round.
template <class Connect>
auto connect_pairs(int ranks, int self, const Connect& connect) {
  std::vector<decltype(connect(std::vector<int>()))> pairs(static_cast<std::size_t>(ranks));
  for (int round = 0; round < tournament_rounds(ranks); ++round) {
    const int partner = tournament_partner(ranks, round, self);
    if (partner != self)
      pairs[static_cast<std::size_t>(partner)] =
          connect(std::vector{std::min(self, partner), std::max(self, partner)});
  }
  return pairs;
}
// The same for devices of one process, pair after pair: connecting allocates device memory, for
// which a driver may wait for all devices, and no other rank may use its device meanwhile.
// `wait_for_all` returns when all ranks have called it.
template <class Connect, class WaitForAll>
auto connect_pairs_sequentially(int ranks, int self, const Connect& connect,
                                const WaitForAll& wait_for_all) {
  std::vector<decltype(connect(std::vector<int>()))> pairs(static_cast<std::size_t>(ranks));
  for (int first = 0; first < ranks; ++first)
    for (int second = first + 1; second < ranks; ++second) {
      wait_for_all();
      if (self == first || self == second)
        pairs[static_cast<std::size_t>(first + second - self)] =
            connect(std::vector{first, second});
    }
  wait_for_all();
  return pairs;
}

}  // namespace engine
