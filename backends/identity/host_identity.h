// Identities of this host and of processes.
#pragma once

#include <cstdint>
#include <string>

namespace backends {

std::string host_name();
// Equal for two processes exactly when loopback connects them: boot id and network namespace.
std::string host_id();
// Start time of a process of this host in clock ticks since boot; 0 if there is no such process.
// Together with the pid it is unique, because pids are reused.
std::uint64_t process_start_time(int pid);

}  // namespace backends
