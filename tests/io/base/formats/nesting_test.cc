// Texts of many levels, of both kinds.
#include "io/base/formats/nesting.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace {

std::string repeated(const std::string& part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

TEST(Nesting, OfJsonCountsListsAndObjects) {
  EXPECT_TRUE(io::json_nests_within_limit(""));
  EXPECT_TRUE(io::json_nests_within_limit(R"({"a": [1, {"b": []}, "]]"]})"));
  for (const auto& [open, close] : {std::pair{"[", "]"}, std::pair{"{\"a\":", "}"}}) {
    const auto nested = [begin = open, end = close](int levels) {
      return repeated(begin, levels) + "1" + repeated(end, levels);
    };
    EXPECT_TRUE(io::json_nests_within_limit(nested(io::kMaxNesting)));
    EXPECT_FALSE(io::json_nests_within_limit(nested(io::kMaxNesting + 1)));
    EXPECT_FALSE(io::json_nests_within_limit(nested(100'000)));
  }
  EXPECT_FALSE(io::json_nests_within_limit(repeated("[", 100'000)));
}

TEST(Nesting, OfJsonIgnoresStringsAndNeighbours) {
  EXPECT_TRUE(io::json_nests_within_limit("[" + repeated("[],", 10'000) + "[]]"));
  EXPECT_TRUE(io::json_nests_within_limit("\"" + repeated("[", 1000) + "\\\"" +
                                          repeated("{", 1000) + "\""));
  EXPECT_FALSE(io::json_nests_within_limit("\"a\\\\\"" + repeated("[", 1000)))
      << "the string ends before the brackets";
}

TEST(Nesting, OfTomlCountsListsTablesAndDottedKeys) {
  for (const auto& [open, close] : {std::pair{"[", "]"}, std::pair{"{a=", "}"}}) {
    const std::string deep = repeated(open, 100'000) + "1" + repeated(close, 100'000);
    EXPECT_FALSE(io::toml_nests_within_limit("x = " + deep));
  }
  EXPECT_FALSE(io::toml_nests_within_limit(repeated("a.", 100'000) + "a = 1"));
  EXPECT_FALSE(io::toml_nests_within_limit("[" + repeated("a.", 100'000) + "a]"));
  EXPECT_FALSE(io::toml_nests_within_limit("[[" + repeated("'a' . ", 100'000) + "a]]"));
  EXPECT_FALSE(io::toml_nests_within_limit("x = " + repeated("{a.a.a.a = ", 20) + "1"));
}

TEST(Nesting, OfTomlIgnoresStringsCommentsAndNumbers) {
  const std::string dots = repeated(".[{", 1000), three(3, '"');
  EXPECT_TRUE(io::toml_nests_within_limit("a = 'it is \"" + dots + "'\nb = 1.5 # " + dots + "'\""));
  EXPECT_TRUE(io::toml_nests_within_limit("a = " + three + "\n" + dots + "\"\n" + three +
                                          "\nb = '''" + dots + "''" + dots + "'''"));
  EXPECT_TRUE(io::toml_nests_within_limit("a = [" + repeated("1.5, ", 1000) + "1.5]"));
  EXPECT_TRUE(io::toml_nests_within_limit(repeated("[[layer]]\na.b = 1.5\n", 1000)));
  EXPECT_FALSE(io::toml_nests_within_limit("a = " + three + dots + three + "\nb = " + dots));
}

TEST(StrayTomlCharacter, IsFoundOutsideStringsAndCommentsOnly) {
  const std::string umlaut = "\xc3\xa4";
  EXPECT_EQ(io::line_of_stray_toml_character("\xef\xbb\xbf# " + umlaut + "\na = '" + umlaut +
                                             "'\n\"" + umlaut + "\" = \"\\\"" + umlaut + "\"\n"),
            std::nullopt);
  EXPECT_EQ(io::line_of_stray_toml_character("a = 1\n[" + umlaut + "]\n"), 2);
  EXPECT_EQ(io::line_of_stray_toml_character("a = ''\n\nb = 1\xc5\xa2"), 3);
}

}  // namespace
