// The agreement on who takes part in an elastic job, through seeded histories of deaths, pauses,
// partitions and newcomers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "tests/simulation/elastic_history.h"
#include "tests/simulation/many_histories.h"

namespace simulation {
namespace {

TEST(ElasticSimulation, TheJobGoesOnAndNoStepIsTakenTwice) {
  run_histories(run_elastic_history, "processes");
}

TEST(ElasticSimulation, TheSameSeedGivesTheSameHistory) { expect_same_twice(run_elastic_history); }

// Worlds of 3 to 5 processes on 1 to 4 hosts, one with slow links; what dies comes back in every
// other history.
TEST(ElasticSimulation, AProcessMayDieBehindEachThingThatItDoes) {
  constexpr std::uint64_t kSeeds[] = {16, 34, 40, 46, 47, 58, 65, 70};
  // Slow builds have fewer.
  constexpr int kStride =
      ENGINE_SIMULATED_HISTORIES < 2'500 ? 20'000 / ENGINE_SIMULATED_HISTORIES : 2;
  int histories = 0;
  for (const std::uint64_t seed : kSeeds) {
    const int points = run_with_death(seed, {}).points;
    EXPECT_GT(points, 200);
    for (int point = 1; point <= points; point += kStride) {
      const History history = run_with_death(seed, {point, point / kStride % 2 == 0});
      ++histories;
      for (const std::string& what : history.wrong)
        ADD_FAILURE() << "seed " << seed << ": " << history.schedule << "\n  " << what;
    }
  }
  std::printf("%d histories\n", histories);
}

}  // namespace
}  // namespace simulation
