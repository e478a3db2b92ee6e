// Draws the pairs of ranks that average their parameters with each other.
#pragma once

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

// The rounds of a tournament in which every rank meets each other rank once.
int tournament_rounds(int ranks);
// Returns the partner of `rank` in a round; `rank` itself if it pauses.
int tournament_partner(int ranks, int round, int rank);

}  // namespace engine
