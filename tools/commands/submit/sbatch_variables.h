// Keeps variables of sbatch from changing what a script requests.
#pragma once

#include <string>
#include <vector>

namespace tools {

// sbatch's variables take precedence over the directives of a script. Removes those from the
// environment of this process that would replace a directive of `script`, contradict it, or change
// what the script relies on (SBATCH_WAIT, SBATCH_NO_REQUEUE, ...). Returns the names of those that
// were set, in alphabetical order. REQUIRES: no other thread.
std::vector<std::string> remove_sbatch_variables(const std::string& script);

}  // namespace tools
