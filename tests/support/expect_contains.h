// EXPECT_CONTAINS(text, part): that a text has a part; EXPECT_LACKS: that it has not;
// EXPECT_VALUES: that it names values.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>
#include <vector>

namespace test_support {

// Whether a line has these words, separated by spaces, in this order, whatever is between them. A
// number is not part of another one: 12 is neither in 128 nor in 1.12.
inline bool line_has_values(const std::string& line, const std::string& values) {
  const auto digit = [&](std::size_t at) {
    return at < line.size() && std::isdigit(static_cast<unsigned char>(line[at])) != 0;
  };
  const auto point = [&](std::size_t at) {
    return at < line.size() && (line[at] == '.' || line[at] == ',');
  };
  std::istringstream words(values);
  std::size_t begin = 0;
  for (std::string word; words >> word; begin += word.size()) {
    for (;; ++begin) {
      begin = line.find(word, begin);
      if (begin == std::string::npos) return false;
      const std::size_t end = begin + word.size();
      const bool goes_on = digit(end - 1) && (digit(end) || (point(end) && digit(end + 1)));
      const bool has_begun =
          digit(begin) && begin > 0 &&
          (digit(begin - 1) || (begin > 1 && point(begin - 1) && digit(begin - 2)));
      if (!goes_on && !has_begun) break;
    }
  }
  return true;
}

// Whether one line of `text` has these values, or the text has them as they are, with their line
// breaks.
inline bool has_values(const std::string& text, const std::string& values) {
  if (values.find_first_of("\n") < values.find_last_not_of("\n"))
    return text.find(values) != std::string::npos;
  std::istringstream lines(text + "\n");
  for (std::string line; std::getline(lines, line);)
    if (line_has_values(line, values)) return true;
  return false;
}

// Whether there are as many lines as `values`, and each has its values.
inline bool lines_have_values(const std::vector<std::string>& lines,
                              const std::vector<std::string>& values) {
  return std::equal(lines.begin(), lines.end(), values.begin(), values.end(), has_values);
}

}  // namespace test_support

#define EXPECT_CONTAINS(text, part)                          \
  EXPECT_NE(std::string(text).find(part), std::string::npos) \
      << "\"" << (text) << "\" lacks \"" << (part) << "\""
#define ASSERT_CONTAINS(text, part)                          \
  ASSERT_NE(std::string(text).find(part), std::string::npos) \
      << "\"" << (text) << "\" lacks \"" << (part) << "\""
#define EXPECT_LACKS(text, part)                             \
  EXPECT_EQ(std::string(text).find(part), std::string::npos) \
      << "\"" << (text) << "\" has \"" << (part) << "\""
#define EXPECT_VALUES(text, values)                   \
  EXPECT_TRUE(test_support::has_values(text, values)) \
      << "\"" << (text) << "\" lacks one of \"" << (values) << "\" in this order"
// EXPECT_LINES(lines, values of the first one, values of the second one, ...)
#define EXPECT_LINES(lines, ...)                                     \
  EXPECT_TRUE(test_support::lines_have_values(lines, {__VA_ARGS__})) \
      << ::testing::PrintToString(lines) << " lacks one of " #__VA_ARGS__
