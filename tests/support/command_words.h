// Command lines of tests: argv("train --save-dir", folder / "run") are the arguments "train",
// "--save-dir" and the path.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/test_support.h"

namespace test_support {

// "top ''" is "top" and an empty word.
inline std::vector<std::string> split_words(const std::string& line) {
  std::istringstream text(line);
  std::vector<std::string> all;
  for (std::string word; text >> word;) all.push_back(word == "''" ? "" : word);
  return all;
}
inline void add_words(std::vector<std::string>& all, const std::string& word) {
  all.push_back(word);
}
inline void add_words(std::vector<std::string>& all, const std::vector<std::string>& words) {
  all.insert(all.end(), words.begin(), words.end());
}
// Literals are split at their spaces; any other text is one argument, and may have spaces.
template <std::size_t size>
void add_words(std::vector<std::string>& all, const char (&literal)[size]) {
  add_words(all, split_words(literal));
}
template <class... Parts>
std::vector<std::string> argv(const Parts&... parts) {
  std::vector<std::string> all;
  (add_words(all, parts), ...);
  return all;
}

// Expects that the command has ended with 0. By the compilers' functions, since clang 14 has no
// std::source_location.
inline CommandResult expect_success(CommandResult result, const char* file = __builtin_FILE(),
                                    int line = __builtin_LINE()) {
  if (result.exit_code != 0)
    ADD_FAILURE_AT(file, line) << "exit code " << result.exit_code << "\n"
                               << result.out << result.err;
  return result;
}

// Runs the program just built with argv(parts...).
template <class... Parts>
CommandResult call(const Parts&... parts) {
  return engine(argv(parts...));
}

}  // namespace test_support
