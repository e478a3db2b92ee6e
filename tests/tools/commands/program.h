// For tests of the real program: trainings, and what it says.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"

namespace program {

// A training on random data of a second or less, with these arguments after it.
inline std::vector<std::string> quick_train(const std::vector<std::string>& more) {
  return test_support::overridden(
      {"train", "--model", "mlp", "--dataset", "synthetic", "--synthetic-shape", "6x6x1",
       "--synthetic-size", "60", "--batch-size", "12", "--threads", "1"},
      more);
}

inline void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_VALUES(text, word);
}

// This exit code, and one line on stderr, with these words.
inline void expect_error(const test_support::CommandResult& result, int code,
                         const std::string& words) {
  EXPECT_EQ(result.exit_code, code) << result.err;
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_VALUES(result.err, words);
}

}  // namespace program
