// A rank's way to the relay: what is missing, starts late, ends, or has another secret.
#include "backends/relay/relay_route.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>

#include "backends/backend_error.h"
#include "backends/relay/relay_watch.h"
#include "tests/backends/relay/relay_client.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/free_port.h"
#include "tests/support/time_limits.h"

namespace {

using backends::RelayRoute;
using backends::RelayRouteRequest;
using relay_client::kSecret;
using relay_client::Relay;
using std::chrono::milliseconds;

RelayRouteRequest request_for(const backends::Endpoint& relay, milliseconds time) {
  return {.place = {relay.host, relay.port},
          .rank = 1,
          .rank_zero = {"127.0.0.1", 1},
          .secret = kSecret,
          .job = "night",
          .deadline = base::deadline_in(time),
          .cancelled = {},
          .notice = {}};
}

constexpr milliseconds kLong = std::chrono::minutes(1);

TEST(RelayRoute, ARelayThatIsMissingIsNamed) {
  const backends::Endpoint at{"127.0.0.1", test_support::free_port()};
  std::vector<std::string> notices;
  RelayRouteRequest request = request_for(at, std::chrono::seconds(2));
  request.notice = [&](const std::string& line) { notices.push_back(line); };
  EXPECT_VALUES(
      test_support::error_of<backends::PeerError>([&] { backends::make_relay_route(request); }),
      to_string(at) + ": Connection refused; `engine relay`");
  EXPECT_LINES(notices, to_string(at) + " Connection refused; 20 s");
}

TEST(RelayRoute, ARelayThatStartsLaterIsWaitedFor) {
  const backends::Endpoint at{"127.0.0.1", test_support::free_port()};
  std::optional<backends::RelayServer> server;
  RelayRouteRequest request = request_for(at, kLong);
  request.notice = [&](const std::string&) {
    server.emplace(backends::RelayServerOptions{
        .listener = backends::listen_on(at), .secret = kSecret, .report = {}, .notice = {}});
  };
  const auto route = backends::make_relay_route(request);
  ASSERT_TRUE(server);
  EXPECT_EQ(route->fault(), "");
  server.reset();
  EXPECT_EQ(route->fault(), "Connection refused");
}

TEST(RelayRoute, AnotherSecretIsAnAuthenticationError) {
  const Relay relay;
  RelayRouteRequest request = request_for(relay.endpoint(), kLong);
  request.secret = {std::string(32, 'x'), "a file"};
  EXPECT_VALUES(test_support::error_of<backends::AuthenticationError>(
                    [&] { backends::make_relay_route(request); }),
                to_string(relay.endpoint()) + ", relay, secret (from a file)");
  EXPECT_VALUES(RelayRoute(relay.endpoint(), request.secret, "night").fault(), "job's secret");
}

TEST(RelayRoute, AStoppedProcessDoesNotWait) {
  RelayRouteRequest request = request_for({"127.0.0.1", test_support::free_port()}, kLong);
  request.cancelled = [] { return true; };
  EXPECT_THROW(backends::make_relay_route(request), backends::CancelledError);
  request.cancelled = []() -> bool { throw backends::PeerError("rank 0 has ended"); };
  EXPECT_EQ(
      test_support::error_of<backends::PeerError>([&] { backends::make_relay_route(request); }),
      "rank 0 has ended");
}

TEST(RelayRoute, SomethingElseAtItsPortIsNoRelay) {
  const backends::Socket silent = backends::listen_on({"127.0.0.1", 0});  // accepts in the kernel
  const RelayRoute route(backends::local_endpoint(silent.fd()), kSecret, "night");
  const std::string reason = route.fault();
  EXPECT_VALUES(reason, "accepts handshake");
  RelayRouteRequest request = request_for(route.relay(), milliseconds(1));
  request.place.host = backends::RelayPlace::kRankZero;
  EXPECT_CONTAINS(
      test_support::error_of<backends::PeerError>([&] { backends::make_relay_route(request); }),
      to_string(route.relay()) + ": " + reason);
}

// A stopped process answers like this. One that has ended is another matter: it may come back.
TEST(RelayRoute, ASilentRelayIsReportedWhileThisRankWaits) {
  const backends::Socket silent = backends::listen_on({"127.0.0.1", 0});
  const auto route =
      std::make_shared<RelayRoute>(backends::local_endpoint(silent.fd()), kSecret, "night");
  EXPECT_FALSE(route->has_pairs());
  EXPECT_TRUE(route->is_silent());
  EXPECT_FALSE(RelayRoute({"127.0.0.1", test_support::free_port()}, kSecret, "night").is_silent());

  route->note_relayed(2);
  std::promise<std::string> reported;
  std::atomic<int> asked{0};
  const backends::RelayWatch watch(
      {.route = route,
       .heartbeat = milliseconds(10),
       .limit = milliseconds(50),
       .waits = [&] { return ++asked > 3; },
       .on_silence = [&](const std::string& text) { reported.set_value(text); }});
  const std::string text = reported.get_future().get();
  EXPECT_GT(asked, 3);
  EXPECT_VALUES(text, "relay " + to_string(route->relay()) + " accepts nothing");
}

// Its questions to the relay are no connections of a pair, and no rejected ones.
TEST(RelayRoute, LeavesNothingAtTheRelay) {
  const Relay relay;
  for (int i = 0; i < 3; ++i) {
    const auto route = backends::make_relay_route(request_for(relay.endpoint(), kLong));
    EXPECT_EQ(route->fault(), "");
  }
  const relay_client::Pair pair = relay_client::join(relay.endpoint(), "a pair");
  EXPECT_EQ(relay.reports().size(), 1u);
  EXPECT_EQ(relay.notices(), std::vector<std::string>{});
}

}  // namespace
