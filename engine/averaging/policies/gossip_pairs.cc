// Shuffles ranks, and computes the rounds of a tournament.
#include "engine/averaging/policies/gossip_pairs.h"

#include <numeric>
#include <utility>

#include "engine/core/error.h"
#include "io/base/numbers/split_mix.h"

namespace engine {
namespace {

constexpr std::uint64_t kPairsStream = 0x676F73736970;  // "gossip"

}  // namespace

GossipPairs::GossipPairs(std::uint64_t seed, int ranks)
    : seed_(seed), order_(static_cast<std::size_t>(ranks)), partners_(order_.size()) {
  require(ranks >= 1, "pairs of no ranks");
}

// Method: Fisher and Yates, as in Knuth, The Art of Computer Programming 2, algorithm P.
std::span<const int> GossipPairs::draw(std::int64_t round) {
  io::SplitMix numbers(seed_, kPairsStream, static_cast<std::uint64_t>(round));
  std::iota(order_.begin(), order_.end(), 0);
  for (std::size_t i = order_.size(); i > 1; --i)
    std::swap(order_[i - 1], order_[numbers.below(static_cast<std::uint32_t>(i))]);
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const std::size_t other = i ^ 1;  // 0 and 1, 2 and 3, ...
    partners_[static_cast<std::size_t>(order_[i])] = order_[other < order_.size() ? other : i];
  }
  return partners_;
}

int tournament_rounds(int ranks) { return ranks % 2 == 0 ? ranks - 1 : ranks; }

// In a round, ranks whose numbers add up to it, modulo the odd number of rounds, are partners. The
// rank that would be paired with itself gets the last one of an even number of ranks.
int tournament_partner(int ranks, int round, int rank) {
  const int rounds = tournament_rounds(ranks);
  const auto halved = [rounds](std::int64_t number) {
    return static_cast<int>(number * ((rounds + 1) / 2) % rounds);
  };
  if (rank == rounds) return halved(round);
  const int other = (round - rank + rounds) % rounds;
  if (other != rank) return other;
  return ranks % 2 == 0 ? rounds : rank;
}

}  // namespace engine
