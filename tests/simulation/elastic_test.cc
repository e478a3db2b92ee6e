// The agreement on who takes part in an elastic job, through seeded histories of deaths, pauses,
// partitions and newcomers. ENGINE_SIMULATION_SEEDS and ENGINE_SIMULATION_FIRST choose how many and
// which.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <map>
#include <string>

#include "tests/simulation/elastic_history.h"

namespace simulation {
namespace {

std::uint64_t number_of(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(ElasticSimulation, TheJobGoesOnAndNoStepIsTakenTwice) {
  const std::uint64_t first = number_of("ENGINE_SIMULATION_FIRST", 1),
                      count = number_of("ENGINE_SIMULATION_SEEDS", ENGINE_SIMULATED_HISTORIES);
  const std::clock_t start = std::clock();
  std::map<std::string, long> ends;
  double seconds = 0;
  const auto most_failures = number_of("ENGINE_SIMULATION_FAILURES", 10);
  std::uint64_t failures = 0;
  for (std::uint64_t seed = first; seed < first + count && failures < most_failures; ++seed) {
    const History history = run_elastic_history(seed);
    seconds += history.seconds;
    for (const auto& [name, number] : history.ends) ends[name] += number;
    if (history.wrong.empty()) continue;
    ++failures;
    std::string text;
    for (const std::string& what : history.wrong) text += "\n  " + what;
    ADD_FAILURE() << "seed " << seed << ": " << history.schedule << text;
  }
  const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf("%llu histories, %.0f a second of a core, %.0f hours of virtual time; processes:",
              static_cast<unsigned long long>(count), static_cast<double>(count) / took,
              seconds / 3600);
  for (const auto& [name, number] : ends) std::printf(" %ld %s", number, name.c_str());
  std::printf("\n");
}

TEST(ElasticSimulation, TheSameSeedGivesTheSameHistory) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const History a = run_elastic_history(seed), b = run_elastic_history(seed);
    EXPECT_EQ(a.schedule, b.schedule);
    EXPECT_EQ(a.ends, b.ends);
    EXPECT_EQ(a.seconds, b.seconds);
  }
}

}  // namespace
}  // namespace simulation
