// Reads the kernel's counters of a TCP connection.
#pragma once

#include <optional>

#include "backends/transport/socket/link_counters.h"

namespace backends {

// Returns none if the kernel does not count (before Linux 4.6).
std::optional<LinkCounters> read_tcp_counters(int fd);

}  // namespace backends
