// "Did you mean": the known name that is closest to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace models {

// The first name that `word` (of 3 letters or more) is the beginning of; else the one with the smallest edit distance
// (insert, delete, replace: Levenshtein, 1966), the first of equals.
// REQUIRES: names is not empty.
std::string nearest_name(std::string_view word, const std::vector<std::string>& names);

std::string join_names(const std::vector<std::string>& names);  // "a, b, c"

}  // namespace models
