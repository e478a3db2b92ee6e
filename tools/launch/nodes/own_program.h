// Finds the file of this program, to start it again.
#pragma once

#include <string>

namespace tools {

// Returns an absolute path, for other hosts. Throws std::runtime_error if neither /proc nor the
// kernel provides it.
std::string own_path();

// Returns, for this host, the very file that runs, even if another file has taken its name since;
// without /proc its path.
std::string own_program();

}  // namespace tools
