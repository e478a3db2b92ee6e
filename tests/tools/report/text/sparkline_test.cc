// The curve above the progress bar.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "tools/report/text/progress_line.h"

namespace {

using tools::LossHistory;
using tools::sparkline;

int characters(const std::string& utf8) {
  int count = 0;
  for (const char c : utf8) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

TEST(Sparkline, GoesFromTheLowestToTheHighestInTwoLines) {
  const std::vector<std::string> falling = sparkline({16, 12, 9, 8, 4, 1}, 20);
  ASSERT_EQ(falling.size(), 2u);
  EXPECT_EQ(falling[0], "█▄▁   ");
  EXPECT_EQ(falling[1], "████▄▁");
}

TEST(Sparkline, NamesTheEndsOfItsScaleWhereThereIsRoom) {
  const std::vector<std::string> curve = sparkline({2.5, 0.125}, 60);
  ASSERT_EQ(curve.size(), 2u);
  EXPECT_EQ(curve[0], "█   2.5       ");
  EXPECT_EQ(curve[1], "█▁  0.125     ");
}

TEST(Sparkline, NeverWrapsAndGoesWhereThereIsNoRoom) {
  std::vector<double> many(1000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = 1.0 / static_cast<double>(i + 1);
  for (int columns = -1; columns < 200; ++columns) {
    const std::vector<std::string> curve = sparkline(many, columns);
    EXPECT_EQ(curve.size(), columns < 8 ? 0u : 2u) << columns;
    for (const std::string& line : curve) EXPECT_LE(characters(line), columns);
  }
}

TEST(Sparkline, HasGapsWhereNumbersAreNotFinite) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::string> curve = sparkline({2, nan, infinity, 1}, 20);
  ASSERT_EQ(curve.size(), 2u);
  EXPECT_EQ(curve[1], "█  ▁");
  EXPECT_TRUE(sparkline({nan, 1, nan}, 20).empty()) << "one value is no curve";
  EXPECT_EQ(sparkline({3, 3, 3}, 20)[1], "▁▁▁");
}

TEST(LossHistory, KeepsMeansOfEqualNumbers) {
  LossHistory history;
  for (int i = 0; i < 10'000; ++i) history.add(i);
  const std::vector<double>& values = history.values();
  EXPECT_LE(values.size(), 512u);
  EXPECT_GE(values.size(), 256u);
  const double each = values[1] - values[0];
  EXPECT_EQ(values[0], (each - 1) / 2) << "the mean of the first ones";
  for (std::size_t i = 1; i + 1 < values.size(); ++i) EXPECT_EQ(values[i] - values[i - 1], each);
}

TEST(ShowsUtf8, AsTheStrongestVariableSays) {
  const auto with = [](const char* all, const char* type, const char* language) {
    setenv("LC_ALL", all, 1);
    setenv("LC_CTYPE", type, 1);
    setenv("LANG", language, 1);
    return tools::shows_utf8();
  };
  EXPECT_TRUE(with("", "", "en_GB.UTF-8"));
  EXPECT_TRUE(with("C.utf8", "C", "C"));
  EXPECT_FALSE(with("C", "C.UTF-8", "C.UTF-8"));
  EXPECT_FALSE(with("", "POSIX", "C.UTF-8"));
  EXPECT_FALSE(with("", "", ""));
}

}  // namespace
