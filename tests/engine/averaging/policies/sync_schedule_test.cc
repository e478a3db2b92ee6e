// The clock of averagings against counting by hand.
#include "engine/averaging/policies/sync_schedule.h"

#include <gtest/gtest.h>

#include "engine/core/error.h"

namespace engine {
namespace {

std::vector<std::int64_t> due_steps(const SyncSchedule& schedule, std::int64_t last) {
  std::vector<std::int64_t> steps;
  for (std::int64_t s = 1; s <= last; ++s)
    if (schedule.due(s)) steps.push_back(s);
  return steps;
}

TEST(SyncSchedule, CountsFromTheBeginningOfEachPhase) {
  EXPECT_EQ(due_steps(SyncSchedule(), 3), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(due_steps(SyncSchedule::constant(4, 0), 12), (std::vector<std::int64_t>{4, 8, 12}));
  EXPECT_EQ(due_steps(SyncSchedule::constant(4, 3), 12),
            (std::vector<std::int64_t>{1, 2, 3, 7, 11}));
  EXPECT_EQ(due_steps(SyncSchedule({{2, 2}, {7, 3}}), 14),
            (std::vector<std::int64_t>{4, 6, 10, 13}));
  EXPECT_TRUE(due_steps(SyncSchedule::constant(500, 0), 392).empty());
}

TEST(SyncSchedule, CountIsTheNumberOfDueSteps) {
  const SyncSchedule schedule({{1, 3}, {10, 1}, {13, 5}, {40, 7}});
  for (std::int64_t first = 0; first < 60; ++first)
    for (std::int64_t last = first; last < 60; ++last) {
      std::int64_t counted = 0;
      for (std::int64_t s = first + 1; s <= last; ++s) counted += schedule.due(s);
      ASSERT_EQ(schedule.count(first, last), counted) << first << " to " << last;
    }
}

TEST(SyncSchedule, RefusesNonsense) {
  EXPECT_THROW(SyncSchedule(std::vector<SyncPhase>{}), Error);
  EXPECT_THROW(SyncSchedule({{0, 0}}), Error);
  EXPECT_THROW(SyncSchedule({{0, 1}, {0, 2}}), Error);
  EXPECT_THROW(SyncSchedule({{-1, 1}}), Error);
}

}  // namespace
}  // namespace engine
