// Parts of text: separators at the ends, blanks, formats.
#include "io/base/text/text_parts.h"

#include <gtest/gtest.h>

#include <limits>

namespace {

using Parts = std::vector<std::string>;

TEST(TextParts, AreOneMoreThanSeparators) {
  EXPECT_EQ(base::split_text("a,bc", ','), (Parts{"a", "bc"}));
  EXPECT_EQ(base::split_text(",a,", ','), (Parts{"", "a", ""}));
  EXPECT_EQ(base::split_text("", ','), Parts{""});
}

TEST(TextParts, JoinIsTheInverse) {
  for (const char* text : {"", "a", "a,b", ",a,,b,"})
    EXPECT_EQ(base::join_text(base::split_text(text, ','), ","), text);
  EXPECT_EQ(base::join_text({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(base::join_text({}), "");
}

TEST(TextParts, TrimmedKeepsWhatIsInside) {
  EXPECT_EQ(base::trimmed(" \ta b\t "), "a b");
  EXPECT_EQ(base::trimmed("a"), "a");
  EXPECT_EQ(base::trimmed(" \t "), "");
  EXPECT_EQ(base::trimmed(""), "");
}

TEST(TextParts, CountsNamesAndShapes) {
  EXPECT_EQ(base::count_text(1, "rank"), "1 rank");
  EXPECT_EQ(base::count_text(0, "rank"), "0 ranks");
  EXPECT_EQ(base::with_dashes("batch_size-2_x"), "batch-size-2-x");
  EXPECT_EQ(base::shape_text({}), "[]");
  EXPECT_EQ(base::shape_text({32, -1}), "[32, -1]");
}

TEST(TextParts, NumbersByAFormat) {
  EXPECT_EQ(base::number_text("%.1f s", 2.25), "2.2 s");
  EXPECT_EQ(base::number_text("%g", 1e-3), "0.001");
  EXPECT_EQ(base::number_text("%.9g", std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(base::number_text("%.4f", -std::numeric_limits<double>::quiet_NaN()), "nan");
}

}  // namespace
