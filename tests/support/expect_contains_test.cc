// Values in messages: their order, and numbers that are parts of others.
#include "tests/support/expect_contains.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using test_support::has_values;

TEST(ExpectValues, AreFoundInTheirOrder) {
  const std::string text = "rank 3: expected 12, found 1.5 and [2, 128] in a.csv";
  EXPECT_TRUE(has_values(text, "rank 3 12 1.5 [2, 128] a.csv"));
  EXPECT_TRUE(has_values(text, "3 12"));
  EXPECT_FALSE(has_values(text, "12 3"));
  EXPECT_FALSE(has_values(text, "3 3"));
  EXPECT_FALSE(has_values(text, "b.csv"));
}

TEST(ExpectValues, AreInOneLine) {
  EXPECT_TRUE(has_values("", ""));
  EXPECT_FALSE(has_values("", "a"));
  EXPECT_TRUE(has_values("first\nrank 3: expected 12\n", "rank 12"));
  EXPECT_FALSE(has_values("rank 3\nexpected 12\n", "rank 12"));
  EXPECT_TRUE(has_values("rank 3\nexpected 12\n", "3\nexpected"));
  EXPECT_FALSE(has_values("rank 3\nexpected 12\n", "rank\nexpected"));
}

TEST(ExpectValues, AreNoPartsOfNumbers) {
  EXPECT_FALSE(has_values("found 128, 31,200, 4.12 and 412", "12"));
  EXPECT_FALSE(has_values("found 1.5", "1"));
  EXPECT_FALSE(has_values("found 1.5", "5"));
  EXPECT_TRUE(has_values("found 128 and 12.", "12"));
  EXPECT_TRUE(has_values("step-00000012", "step-00000012"));
}

TEST(ExpectValues, OfLinesAreThoseOfEach) {
  const std::vector<std::string> lines{"rank 1 left", "rank 2 left"};
  EXPECT_TRUE(test_support::lines_have_values(lines, {"rank 1", "rank 2"}));
  EXPECT_FALSE(test_support::lines_have_values(lines, {"rank 2", "rank 1"}));
  EXPECT_FALSE(test_support::lines_have_values(lines, {"rank 1"}));
  EXPECT_LINES(lines, "1 left", "2 left");
}

}  // namespace
