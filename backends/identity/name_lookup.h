// Resolves names with a deadline, which the system's resolver does not support.
#pragma once

#include <string>
#include <vector>

#include "backends/store/tcp_socket.h"

namespace backends {

// Returns the addresses of `host` in the resolver's order, without port; empty if there is none
// yet, with a `reason` that names the host. Blocks at most until `deadline`: a longer look-up
// continues in its own thread, and its result is discarded.
[[nodiscard]] std::vector<std::string> look_up_host(const std::string& host, Deadline deadline,
                                                    std::string& reason);

bool is_loopback(const std::string& address);  // 127.0.0.0/8 or ::1, numeric
bool is_address(const std::string& host);      // numeric, not a name

}  // namespace backends
