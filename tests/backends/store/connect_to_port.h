// A connection to a port of this host, as a stranger to the store makes it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "backends/store/tcp_socket.h"
#include "io/base/time/deadline.h"
#include "tests/support/time_limits.h"

namespace group_harness {

inline backends::Socket connect_to_port(int port) {
  std::string reason;
  backends::Socket socket = backends::connect_to(
      {"127.0.0.1", port}, base::deadline_in(test_support::deadline(std::chrono::seconds(60))),
      reason);
  EXPECT_TRUE(socket) << reason;
  return socket;
}

}  // namespace group_harness
