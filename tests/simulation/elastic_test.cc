// The agreement on who takes part in an elastic job, through seeded histories of deaths, pauses,
// partitions and newcomers.
#include <gtest/gtest.h>

#include "tests/simulation/elastic_history.h"
#include "tests/simulation/many_histories.h"

namespace simulation {
namespace {

TEST(ElasticSimulation, TheJobGoesOnAndNoStepIsTakenTwice) {
  run_histories(run_elastic_history, "processes");
}

TEST(ElasticSimulation, TheSameSeedGivesTheSameHistory) { expect_same_twice(run_elastic_history); }

}  // namespace
}  // namespace simulation
