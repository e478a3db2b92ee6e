// Identities of this host and of processes.
#pragma once

#include <cstdint>
#include <string>

namespace backends {

std::string host_name();
// Equal for two processes exactly when one kernel runs them, in whatever containers.
std::string machine_id();
// Equal for two processes exactly when loopback connects them: boot id and network namespace.
std::string host_id();
// Equal for two processes exactly when a process id means the same process to both: boot id and
// namespace of process ids.
std::string process_space();
// Start time of a process of this host in clock ticks since boot; 0 if there is no such process.
// Together with the pid it is unique, because pids are reused.
std::uint64_t process_start_time(int pid);

}  // namespace backends
