// Finds the known name that is closest to a mistyped one, for "did you mean" hints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace base {

// Returns the first candidate that has `name` (of three letters or more) as a prefix. Otherwise
// returns the one with the fewest typing errors (a letter missing, added, wrong or swapped: optimal
// string alignment), treating - and _ as equal. Returns "" if all differ by more than a third of
// the name.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// Returns ": did you mean 'x'?" for the nearest of the candidates, with `mark` before it ("--" for
// options); "" if none is near. All hints of the program use this function.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates,
                         std::string_view mark = "");

}  // namespace base
