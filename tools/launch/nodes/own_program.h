// The file of this program, to start it again.
#pragma once

#include <string>

namespace tools {

// Absolute, for other hosts. Throws std::runtime_error where neither /proc nor the kernel tells.
std::string own_path();

// For this host: the very file that runs, also where another has taken its name since; without
// /proc its path.
std::string own_program();

}  // namespace tools
