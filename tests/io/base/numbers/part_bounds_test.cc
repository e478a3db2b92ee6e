// Parts of a count: without gaps, and for counts near the largest number.
#include "io/base/numbers/part_bounds.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace {

TEST(PartBounds, PartsFollowEachOtherAndDifferByOneAtMost) {
  for (const int count : {0, 1, 5, 7, 12, 100})
    for (const int parts : {1, 2, 3, 7, 13}) {
      int end = 0;
      for (int part = 0; part < parts; ++part) {
        const base::PartBounds<int> bounds = base::part_bounds(count, part, parts);
        EXPECT_EQ(bounds.begin, end);
        EXPECT_EQ(bounds.begin, count * part / parts);
        EXPECT_GE(bounds.size(), count / parts);
        EXPECT_LE(bounds.size(), (count + parts - 1) / parts);
        end = bounds.end;
      }
      EXPECT_EQ(end, count);
    }
}

TEST(PartBounds, LargeCountsDoNotOverflow) {
  constexpr auto kMax = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(base::part_begin(kMax, 3, 3), kMax);
  EXPECT_EQ(base::part_begin(kMax, 1, 3), kMax / 3);
  EXPECT_EQ(base::part_begin(kMax, 2, 3), kMax / 3 * 2);
  constexpr auto kMaxSigned = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(base::part_bounds(kMaxSigned, 6, 7).end, kMaxSigned);
}

}  // namespace
