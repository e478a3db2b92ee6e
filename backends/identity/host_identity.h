// Identifies this host and its processes.
#pragma once

#include <cstdint>
#include <string>

namespace backends {

std::string host_name();
// Returns an id that two processes share exactly if one kernel runs them, in whatever containers.
std::string machine_id();
// Returns an id that two processes share exactly if loopback connects them: boot id and network
// namespace.
std::string host_id();
// Returns an id that two processes share exactly if a process id means the same process to both:
// boot id and namespace of process ids.
std::string process_space();
// Returns the start time of a process of this host in clock ticks since boot; 0 if there is no such
// process. Together with the pid it is unique, because pids are reused.
std::uint64_t process_start_time(int pid);

}  // namespace backends
