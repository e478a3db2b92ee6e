// Histories of many seeds, and what came of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>

#include "tests/simulation/history.h"

namespace simulation {

// Runs ENGINE_SIMULATION_SEEDS histories (ENGINE_SIMULATED_HISTORIES, if it is not set) from the
// seed ENGINE_SIMULATION_FIRST (1) on, until ENGINE_SIMULATION_FAILURES (10) of them have gone
// wrong, and prints how many `actors` have ended how.
inline void run_histories(History (*run)(std::uint64_t seed), const char* actors) {
  const auto number_of = [](const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  };
  const std::uint64_t first = number_of("ENGINE_SIMULATION_FIRST", 1),
                      count = number_of("ENGINE_SIMULATION_SEEDS", ENGINE_SIMULATED_HISTORIES),
                      max_failures = number_of("ENGINE_SIMULATION_FAILURES", 10);
  const std::clock_t start = std::clock();
  std::map<std::string, long> ends;
  double seconds = 0;
  std::uint64_t failures = 0, done = 0;
  for (std::uint64_t seed = first; seed < first + count && failures < max_failures; ++seed) {
    const History history = run(seed);
    ++done;
    seconds += history.seconds;
    for (const auto& [name, number] : history.ends) ends[name] += number;
    if (history.wrong.empty()) continue;
    ++failures;
    std::string text;
    for (const std::string& what : history.wrong) text += "\n  " + what;
    ADD_FAILURE() << "seed " << seed << ": " << history.schedule << text;
  }
  const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf("%llu histories, %.0f a second of a core, %.0f hours of virtual time; %s:",
              static_cast<unsigned long long>(done), static_cast<double>(done) / took,
              seconds / 3600, actors);
  for (const auto& [name, number] : ends) std::printf(" %ld %s", number, name.c_str());
  std::printf("\n");
}

// Of the first seeds.
inline void expect_same_twice(History (*run)(std::uint64_t seed)) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const History a = run(seed), b = run(seed);
    EXPECT_EQ(a.schedule, b.schedule);
    EXPECT_EQ(a.ends, b.ends);
    EXPECT_EQ(a.seconds, b.seconds);
  }
}

}  // namespace simulation
