// Connections between agents while the system has no descriptor for them.
#include "backends/membership/agent_sockets.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <vector>

#include "tests/support/expect_contains.h"
#include "tests/support/no_descriptors.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using backends::AgentSockets;

TEST(AgentSockets, WithoutDescriptorsTheThreadWaits) {
  std::vector<std::string> notices;
  AgentSockets sockets({std::string(32, 's'), "test"}, {},
                       {.received = {},
                        .refused = {},
                        .no_agent = {},
                        .turned_away = {},
                        .notice = [&](const std::string& text) { notices.push_back(text); }},
                       10s);
  backends::Socket listener = backends::listen_on({"127.0.0.1", 0});
  std::string reason;
  const backends::Socket peer =
      backends::connect_to(backends::local_endpoint(listener.fd()), base::deadline_in(20s), reason);
  ASSERT_TRUE(peer) << reason;
  const base::WakeEvent wake;
  {
    const int fd = listener.fd();
    sockets.listen(std::move(listener));
    const test_support::NoDescriptors none;
    sockets.poll_once(wake, base::deadline_in(20s));  // finds the connection that it cannot accept
    const base::Deadline until = base::deadline_in(20ms);
    sockets.poll_once(wake, until);
    EXPECT_TRUE(base::has_passed(until)) << "the listener " << fd << " was polled again at once";
    for (int i = 0; i < 3; ++i) sockets.poll_once(wake, base::deadline_in(150ms));
  }
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_VALUES(notices[0], "accept open files limit");
  EXPECT_TRUE(notices[0].ends_with("; trying again")) << notices[0];

  // The connection is accepted later: the text, which is not the protocol, ends it.
  const std::string text(64, 'x');
  ASSERT_EQ(send(peer.fd(), text.data(), text.size(), MSG_NOSIGNAL), 64);
  char byte = 0;
  EXPECT_TRUE(test_support::eventually([&] {
    sockets.poll_once(wake, base::deadline_in(10ms));
    return recv(peer.fd(), &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
  }));
}

}  // namespace
