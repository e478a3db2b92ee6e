// Identifies this host and process.
#pragma once

#include <cstdint>
#include <string>

namespace backends {

std::string host_name();
// Equal for two processes exactly when loopback connects them: boot id and network namespace.
std::string host_id();
// Kernel start time of a process of this host in clock ticks since boot; 0 when there is no such
// process. With the pid it names a process for good (pids are used again).
std::uint64_t process_start_time(int pid);

}  // namespace backends
