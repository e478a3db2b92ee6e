// engine report --watch: the page of runs as they go on.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <string>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/tools/commands/program.h"
#include "tests/tools/commands/views/http_client.h"
#include "tests/tools/launch/launch_runner.h"

namespace {

using program::expect_error;
using program::expect_words;
using test_support::CommandResult;
using test_support::expect_success;

TEST(ReportWatch, ServesThePageAsTheRunGoesOnUntilItIsAskedToEnd) {
  const test_support::TemporaryDirectory folder;
  const std::string run = folder / "run";
  expect_success(
      test_support::engine(program::quick_train({"--log-every", "2", "--save-dir", run})));
  test_support::Running server({test_support::engine_binary(), "report", run, "--watch"});
  const std::string before = "serving http://127.0.0.1:";
  std::string line;
  ASSERT_TRUE(test_support::eventually([&] { return (line = server.out()).ends_with("\n"); }))
      << server.err();
  ASSERT_TRUE(line.starts_with(before)) << line;
  const int port = std::stoi(line.substr(before.size()));
  // A path that nobody can guess, for the port is open to all users of the host.
  const std::size_t slash = line.find('/', before.size());
  const std::string path = line.substr(slash, line.find(' ', slash) - slash);
  ASSERT_GE(path.size(), std::string("/0123456789abcdef0123456789abcdef/").size()) << line;
  const auto page = [&](const std::string& host) {
    return http_client::answer(port, "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  const std::string host = "127.0.0.1:" + std::to_string(port), ended = page(host);
  expect_words(ended, {"200 OK", "text/html", ">Loss</figcaption>"});
  EXPECT_LACKS(ended, "Pause");  // there is nothing to come
  EXPECT_TRUE(page("evil.example").starts_with("HTTP/1.1 421 "));
  const std::string guess =
      http_client::answer(port, "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  EXPECT_TRUE(guess.starts_with("HTTP/1.1 404 ")) << guess;
  EXPECT_LACKS(guess, path);
  {
    std::ofstream metrics(run + "/metrics.jsonl", std::ios::app);
    metrics << "{\"schema\":1,\"event\":\"start\",\"step\":5}\n"
            << "{\"schema\":1,\"event\":\"step\",\"step\":777,\"loss\":1}\n";
  }
  expect_words(page(host), {"777 steps so far", "<button type=\"button\">Pause</button>",
                            "<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>"});
  const CommandResult taken =
      test_support::engine({"report", run, "--watch", "--port", std::to_string(port)});
  expect_error(taken, 73, "in use");
  kill(server.pid(), SIGTERM);
  EXPECT_EQ(server.wait(), 0) << server.err();
}

TEST(ReportWatch, MistakesAreSaidFirst) {
  const test_support::TemporaryDirectory folder;
  const std::string run = folder / "run";
  expect_error(test_support::engine({"report", run, "--watch", "-o", folder / "p.html"}), 2,
               "--output");
  expect_error(test_support::engine({"report", run, "--port", "1"}), 2, "--watch");
  expect_error(test_support::engine({"report", run, "--watch"}), 65, "run/run.json");
}

}  // namespace
