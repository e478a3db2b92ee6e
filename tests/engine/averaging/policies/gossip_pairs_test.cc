// Pairs of ranks: matchings, and tournaments.
#include "engine/averaging/policies/gossip_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

namespace engine {
namespace {

std::vector<int> pairs_of(std::uint64_t seed, int ranks, std::int64_t round) {
  GossipPairs pairs(seed, ranks);
  const auto partners = pairs.draw(round);
  return {partners.begin(), partners.end()};
}

// Expects a matching of all ranks: partners are mutual, and one rank pauses if their number is odd.
void expect_matching(const std::vector<int>& partners, const std::string& of) {
  int pausing = 0;
  for (std::size_t rank = 0; rank < partners.size(); ++rank) {
    const auto partner = static_cast<std::size_t>(partners[rank]);
    ASSERT_LT(partner, partners.size()) << of;
    ASSERT_EQ(partners[partner], static_cast<int>(rank)) << of;
    pausing += partner == rank;
  }
  ASSERT_EQ(pausing, partners.size() % 2) << of;
}

TEST(GossipPairs, EveryRankIsInOnePairOrPauses) {
  for (int ranks = 1; ranks <= 33; ++ranks)
    for (std::int64_t round = 0; round < 50; ++round)
      expect_matching(pairs_of(7, ranks, round),
                      std::to_string(ranks) + " ranks, round " + std::to_string(round));
}

TEST(GossipPairs, DependOnSeedAndRoundAlone) {
  GossipPairs other_order(3, 9);
  std::vector<std::vector<int>> backward;
  for (std::int64_t round = 20; round >= 0; --round) {
    const auto partners = other_order.draw(round);
    backward.emplace_back(partners.begin(), partners.end());
  }
  int changed = 0, other_seed = 0;
  for (std::int64_t round = 0; round <= 20; ++round) {
    const std::vector<int> partners = pairs_of(3, 9, round);
    EXPECT_EQ(partners, backward[static_cast<std::size_t>(20 - round)]) << round;
    changed += partners != pairs_of(3, 9, round + 1);
    other_seed += partners != pairs_of(4, 9, round);
  }
  EXPECT_GT(changed, 18);
  EXPECT_GT(other_seed, 18);
}

// Each of the n (n - 1) / 2 pairs has the same chance. Of 3000 rounds, each of the 15 pairs of six
// ranks is in 600 on average with a standard deviation of 22, and each of the 10 of five ranks too.
TEST(GossipPairs, AllPairsOccurEquallyOften) {
  for (const int ranks : {5, 6}) {
    std::vector<std::vector<int>> times(static_cast<std::size_t>(ranks),
                                        std::vector<int>(static_cast<std::size_t>(ranks)));
    GossipPairs pairs(0, ranks);
    for (std::int64_t round = 0; round < 3000; ++round) {
      const auto partners = pairs.draw(round);
      for (std::size_t rank = 0; rank < partners.size(); ++rank)
        ++times[rank][static_cast<std::size_t>(partners[rank])];
    }
    for (std::size_t a = 0; a < times.size(); ++a)
      for (std::size_t b = 0; b < times.size(); ++b) {
        if (a == b && ranks % 2 == 0) continue;  // nobody pauses
        EXPECT_NEAR(times[a][b], 600, 110) << ranks << " ranks: " << a << " and " << b;
      }
  }
}

TEST(Tournament, EveryRankMeetsEachOtherOnce) {
  for (int ranks = 2; ranks <= 33; ++ranks) {
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < tournament_rounds(ranks); ++round) {
      std::vector<int> partners;
      for (int rank = 0; rank < ranks; ++rank)
        partners.push_back(tournament_partner(ranks, round, rank));
      expect_matching(partners, std::to_string(ranks) + " ranks, round " + std::to_string(round));
      for (int rank = 0; rank < ranks; ++rank)
        if (partners[static_cast<std::size_t>(rank)] > rank) {
          EXPECT_TRUE(met.emplace(rank, partners[static_cast<std::size_t>(rank)]).second);
        }
    }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(ranks * (ranks - 1) / 2)) << ranks;
  }
}

// Every rank connects with each other one, and both sides name the same pair.
TEST(GossipPairs, ConnectInTurnOneAfterTheOther) {
  constexpr int kRanks = 5;
  int meetings = 0;
  std::vector<std::pair<int, std::vector<int>>> order;
  for (int self = 0; self < kRanks; ++self) {
    int met = 0;
    const auto pairs = connect_pairs_sequentially(
        kRanks, self,
        [&](const std::vector<int>& pair) {
          order.emplace_back(met, pair);
          return pair;
        },
        [&] { ++met; });
    for (int other = 0; other < kRanks; ++other)
      EXPECT_EQ(pairs[static_cast<std::size_t>(other)],
                other == self ? std::vector<int>()
                              : std::vector({std::min(self, other), std::max(self, other)}));
    EXPECT_TRUE(self == 0 || met == meetings);
    meetings = met;
  }
  // Between two meetings, one pair connects: its two ranks.
  std::ranges::sort(order);
  ASSERT_EQ(order.size(), std::size_t{kRanks * (kRanks - 1)});
  for (std::size_t i = 0; i < order.size(); i += 2) {
    EXPECT_EQ(order[i], order[i + 1]);
    EXPECT_EQ(order[i].first, static_cast<int>(i / 2) + 1);
  }
}

}  // namespace
}  // namespace engine
