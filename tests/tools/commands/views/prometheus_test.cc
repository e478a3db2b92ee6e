// --prometheus: the page of a running training, and clients that nobody wants.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/command_words.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/tools/commands/program.h"
#include "tests/tools/commands/views/http_client.h"
#include "tests/tools/launch/launch_runner.h"

namespace {

using http_client::connected;
using http_client::loopback;
using http_client::send_text;
using http_client::Socket;
using program::expect_error;
using program::quick_train;
using test_support::argv;
using test_support::CommandResult;
using test_support::eventually;
using test_support::Running;
using test_support::TemporaryDirectory;

// The body of the answer, as curl prints it.
std::string get(int port, const std::string& accept = "text/plain") {
  const std::string all = http_client::answer(
      port, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: " + accept + "\r\n\r\n");
  EXPECT_TRUE(all.starts_with("HTTP/1.1 200 OK\r\n")) << all;
  return all.substr(all.find("\r\n\r\n") + 4);
}

// What stands behind this name (with labels) on the page; "": there is none.
std::string value_of(const std::string& page, const std::string& name) {
  const std::size_t at = page.find("\n" + name + " ");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + name.size() + 2;
  return page.substr(begin, page.find('\n', begin) - begin);
}

// A training that goes on until it is stopped.
class PrometheusTest : public testing::Test {
 protected:
  static std::vector<std::string> command(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = quick_train(
        {"--spawn", "2", "--epochs", "1000000", "--log-every", "5", "--eval-every", "100s"});
    arguments.insert(arguments.begin(), test_support::engine_binary());
    arguments = test_support::overridden(arguments, more);
    return arguments;
  }
  // Waits for the page, and returns its port.
  static int port_of(const Running& running) {
    std::smatch found;
    std::string out;
    eventually([&] { return (out = running.out()).find("/metrics\n") != std::string::npos; });
    static const std::regex kUrl(
        "Metrics for Prometheus: http://127\\.0\\.0\\.1:([0-9]+)/metrics\n");
    if (!std::regex_search(out, found, kUrl)) {
      ADD_FAILURE() << out << running.err();
      return 0;
    }
    return std::stoi(found[1]);
  }
  static std::string page_with(int port, const std::string& name) {
    std::string page;
    EXPECT_TRUE(eventually([&] { return !value_of(page = get(port), name).empty(); })) << page;
    return page;
  }

  const TemporaryDirectory folder_;
};

TEST_F(PrometheusTest, ServesWhatTheRunReports) {
  Running running(command({"--prometheus", ":0", "--clip-grad", "1", "--save-dir", folder_ / "run",
                           "--save-every", "50s"}));
  const int port = port_of(running);
  ASSERT_GT(port, 0);
  std::string page = page_with(port, "engine_last_save_step");
  page = page_with(port, "engine_evaluation_loss{split=\"test\",weights=\"model\"}");
  const auto number = [&](const std::string& name) {
    const std::string text = value_of(page, name);
    EXPECT_NE(text, "") << name << " in " << page;
    return text.empty() ? 0 : std::stod(text);
  };
  EXPECT_EQ(number("engine_ranks"), 2);
  EXPECT_EQ(number("engine_planned_steps"), 5'000'000);
  EXPECT_EQ(number("engine_learning_rate"), 0.05);
  EXPECT_EQ(number("engine_samples"), 12 * number("engine_step"));
  EXPECT_EQ(
      static_cast<int>(number("engine_evaluation_step{split=\"test\",weights=\"model\"}")) % 100,
      0);
  EXPECT_EQ(static_cast<int>(number("engine_last_save_step")) % 50, 0);
  EXPECT_GT(number("engine_last_save_timestamp_seconds"), 1.7e9);
  EXPECT_GT(number("engine_samples_per_second"), 0);
  EXPECT_GT(number("engine_sent_bytes_total"), 0);
  EXPECT_GT(number("engine_gradient_norm"), 0);
  EXPECT_GT(number("engine_loss"), 0);
  for (const char* rank : {"0", "1"})
    EXPECT_GT(number(std::string("engine_phase_seconds{rank=\"") + rank + "\",phase=\"forward\"}"),
              0);
  EXPECT_EQ(value_of(page, "engine_phase_seconds{rank=\"2\",phase=\"forward\"}"), "");
  const double step = number("engine_step");
  EXPECT_TRUE(eventually([&] { return std::stod(value_of(get(port), "engine_step")) > step; }));
  EXPECT_TRUE(get(port, "application/openmetrics-text; version=1.0.0").ends_with("\n# EOF\n"));
  test_support::write_text(folder_ / "page", page);
  kill(running.pid(), SIGTERM);
  EXPECT_EQ(running.wait(), 128 + SIGTERM) << running.err();

  const CommandResult checked = test_support::run_command(
      {"/bin/sh", "-c",
       "command -v promtool >/dev/null || exit 77; promtool check metrics <'" + (folder_ / "page") +
           "'"});
  if (checked.exit_code == 77) GTEST_SKIP() << "no promtool (Debian's package prometheus)";
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
  EXPECT_EQ(checked.out + checked.err, "");
}

// By check_openmetrics.py, and by the parser of prometheus_client where PEER_PYTHON (python3) has
// it.
TEST_F(PrometheusTest, OpenMetricsFollowTheirRules) {
  Running running(command({"--prometheus", "0", "--clip-grad", "1"}));
  const int port = port_of(running);
  ASSERT_GT(port, 0);
  page_with(port, "engine_evaluation_loss{split=\"test\",weights=\"model\"}");
  test_support::write_text(folder_ / "page", get(port, "application/openmetrics-text"));
  kill(running.pid(), SIGTERM);
  EXPECT_EQ(running.wait(), 128 + SIGTERM) << running.err();
  const char* python = std::getenv("PEER_PYTHON");
  const CommandResult checked = test_support::run_command(
      {"/usr/bin/env", python == nullptr ? "python3" : python,
       test_support::source_directory() + "/tests/tools/commands/views/check_openmetrics.py",
       folder_ / "page"});
  if (checked.exit_code == 77) GTEST_SKIP() << checked.out;
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
}

// A scanner that sends garbage, and clients that neither speak nor read: steps go on and the page
// is served.
TEST_F(PrometheusTest, BadClientsNeitherStopNorEndTheTraining) {
  Running running(command({"--prometheus", "0"}));
  const int port = port_of(running);
  ASSERT_GT(port, 0);
  std::vector<std::unique_ptr<Socket>> hanging;
  std::mt19937 random(11);
  for (int i = 0; i < 20; ++i) {
    hanging.push_back(connected(port));  // never says a word
    hanging.push_back(connected(port));
    send_text(*hanging.back(), "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");  // never reads
    std::string garbage(random() % 12'000, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    send_text(*connected(port), garbage);
  }
  const std::string step = value_of(page_with(port, "engine_step"), "engine_step");
  EXPECT_TRUE(eventually(
      [&] { return std::stod(value_of(get(port), "engine_step")) > std::stod(step) + 20; }));
  kill(running.pid(), SIGTERM);
  EXPECT_EQ(running.wait(), 128 + SIGTERM) << running.err();
}

TEST_F(PrometheusTest, APortInUseIsSaidBeforeAnythingBegins) {
  const Socket other;
  sockaddr_in address = loopback(0);
  ASSERT_EQ(bind(other.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(other.fd, 1), 0);
  socklen_t size = sizeof address;
  getsockname(other.fd, reinterpret_cast<sockaddr*>(&address), &size);
  const std::string port = std::to_string(ntohs(address.sin_port));
  for (const char* ranks : {"0", "2"}) {
    const CommandResult result = test_support::engine(
        quick_train(argv("--prometheus", port, "--save-dir", folder_ / "run", "--spawn", ranks)));
    expect_error(result, 73, "127.0.0.1:" + port + " in use");
    EXPECT_EQ(result.out, "");
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
}

TEST_F(PrometheusTest, AddressesThatAreNoneAreRefused) {
  for (const char* address : {"n1:9400", "*:9400", "0.0.0.0", "::1:9400", "127.0.0.1:99999", "x"})
    expect_error(test_support::engine(quick_train({"--prometheus", address})), 78,
                 std::string("--prometheus '") + address + "' --prometheus 9400");
}

}  // namespace
