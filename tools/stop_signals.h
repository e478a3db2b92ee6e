// SIGINT and SIGTERM: the first asks for an orderly stop, the second ends the process at once (unless it is the first one
// heard again through the parent).
#pragma once

#include <atomic>

namespace tools {

// Installs the handlers (once) and returns the flag: 0, or the number of the signal that asked to stop.
const std::atomic<int>& install_stop_signals();

}  // namespace tools
