// The store's state machines through seeded histories of pauses, deaths, cuts and broken
// connections.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/simulation/history.h"
#include "tests/simulation/many_histories.h"
#include "tests/simulation/simulated_rank.h"
#include "tests/simulation/virtual_network.h"

namespace simulation {
namespace {

TEST(Simulation, NobodyHangsAndTheCulpritIsNamed) { run_histories(run_history, "ranks"); }

constexpr int kWorld = 1000;

// Its ranks, which start within `spread`; the network owns them.
std::vector<SimulatedRank*> large_world(VirtualNetwork& network, RankOptions options,
                                        milliseconds spread) {
  std::vector<SimulatedRank*> ranks;
  options.world_size = kWorld;
  for (options.rank = 0; options.rank < kWorld; ++options.rank) {
    options.number = options.rank;
    options.starts_after = milliseconds(network.dice().between(0, spread.count()));
    auto rank = std::make_unique<SimulatedRank>(network, options);
    ranks.push_back(rank.get());
    network.add(std::move(rank));
  }
  return ranks;
}

// What rank 0's store sends and receives in a world of 1,000, in messages and bytes a rank: it must
// not grow with the square of the world.
TEST(Simulation, AWorldOf1000JoinsAndLeaves) {
  VirtualNetwork network(1);
  const std::vector<SimulatedRank*> ranks =
      large_world(network, {.steps = 0, .mesh = false}, milliseconds(2000));
  network.run(network.now() + std::chrono::seconds(30));
  for (const SimulatedRank* rank : ranks)
    ASSERT_EQ(rank->outcome().end, SimulatedRank::End::kFinished) << rank->outcome().text;
  const auto messages = network.messages() / kWorld, bytes = network.bytes() / kWorld;
  std::printf("joining and leaving: %lld messages and %lld bytes a rank\n",
              static_cast<long long>(messages), static_cast<long long>(bytes));
  EXPECT_LT(messages, 40);
  EXPECT_LT(bytes, 150'000);  // most of it the list of members
}

TEST(Simulation, ADeathInAWorldOf1000IsToldToAll) {
  VirtualNetwork network(2);
  const std::vector<SimulatedRank*> ranks =
      large_world(network, {.steps = 1, .mesh = false}, milliseconds(0));
  const Time death = network.now() + std::chrono::seconds(10);
  network.run(death);
  const std::int64_t before = network.messages();
  network.exit(7);
  network.run(death + std::chrono::milliseconds(500));
  for (int r = 0; r < kWorld; ++r) {
    if (r == 7) continue;
    const SimulatedRank::Outcome& outcome = ranks[static_cast<std::size_t>(r)]->outcome();
    ASSERT_EQ(outcome.end, SimulatedRank::End::kFailed);
    ASSERT_EQ(outcome.culprit, 7);
  }
  std::printf("a death: %lld messages a rank\n",
              static_cast<long long>((network.messages() - before) / kWorld));
  EXPECT_LT(network.messages() - before, 8 * kWorld);
}

TEST(Simulation, TheSameSeedGivesTheSameHistory) { expect_same_twice(run_history); }

}  // namespace
}  // namespace simulation
