// "Did you mean": the known name that is closest to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace base {

// The first candidate that `name` (of three letters or more) is the beginning of; else the one with
// the fewest typing errors (a letter missing, added, wrong or swapped: optimal string alignment),
// - and _ being the same; "" when all are further away than a third of the name.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// ": did you mean 'x'?" for the nearest of the candidates, with `mark` before it ("--" of options);
// "" when none is near. All hints of the program are this one.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates,
                         std::string_view mark = "");

}  // namespace base
