// --shares in the real program: a slow rank gets fewer samples, and what is printed and recorded.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/command_words.h"
#include "tests/support/running_program.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using test_support::argv;
using test_support::Running;
using test_support::TemporaryDirectory;

// Lets a process run for a quarter of the time.
class SlowedProcess {
 public:
  explicit SlowedProcess(pid_t pid) : pid_(pid), thread_([this] { alternate(); }) {}
  ~SlowedProcess() {
    ended_ = true;
    thread_.join();
  }

 private:
  void alternate() const {
    while (!ended_) {
      kill(pid_, SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      kill(pid_, SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  const pid_t pid_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

// The "shares" events of a metrics file: the samples of each rank in the next step.
std::vector<std::vector<std::int64_t>> shares_in(const std::string& metrics) {
  std::vector<std::vector<std::int64_t>> found;
  if (!std::filesystem::exists(metrics)) return found;
  std::istringstream lines(test_support::read_text(metrics));
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"event\":\"shares\"") == std::string::npos || line.back() != '}') continue;
    std::smatch match;
    static const std::regex kEvent(
        R"("samples":\[(\d+),(\d+)\],"samples_per_s":\[[0-9.e+]+,[0-9.e+]+\]\}$)");
    EXPECT_TRUE(std::regex_search(line, match, kEvent)) << line;
    if (!match.empty()) found.push_back({std::stoll(match[1]), std::stoll(match[2])});
  }
  return found;
}

TEST(SharesProgram, ASlowedRankGetsLess) {
  const TemporaryDirectory folder;
  const std::string metrics = folder / "metrics.jsonl";
  const auto rank = [&](int number) {
    return argv(test_support::engine_binary(),
                "train --model convnet --dataset synthetic --synthetic-shape 16x16x1 "
                "--batch-size 64 --threads 1 --steps 100000000 --eval-every 0 --shares auto "
                "--world-size 2 --rank",
                std::to_string(number), "--init-method", "file://" + (folder / "meet"), "--metrics",
                metrics);
  };
  Running first(rank(0)), second(rank(1));
  {
    const SlowedProcess slowed(second.pid());
    EXPECT_TRUE(test_support::eventually([&] {
      const auto shares = shares_in(metrics);
      return !shares.empty() && shares.back().at(0) >= 2 * shares.back().at(1);
    })) << first.out()
        << first.err() << second.err();
  }
  for (const auto& shares : shares_in(metrics)) EXPECT_EQ(shares.at(0) + shares.at(1), 64);
  EXPECT_TRUE(first.writes_out("Shares of a step: "));
  EXPECT_NE(first.out().find(" samples, by the measured "), std::string::npos) << first.out();
  kill(first.pid(), SIGTERM);
  EXPECT_EQ(first.wait(), 128 + SIGTERM) << first.err();
  EXPECT_EQ(second.wait(), 128 + SIGTERM) << second.err();
  EXPECT_EQ(second.out().find("Shares of a step"), std::string::npos) << "rank 0 prints it";
}

TEST(SharesProgram, WeightsAreInTheFirstLine) {
  const auto result = test_support::expect_success(
      test_support::call("train --model mlp --dataset synthetic --synthetic-shape 6x6x1 "
                         "--synthetic-size 60 --batch-size 32 --threads 1 --steps 2 --spawn 2",
                         std::vector<std::string>{"--shares", "3:1"}));
  program::expect_words(result.out, {"global batch 32 = 24 + 8 "});
}

TEST(SharesProgram, LocalStepsAreInThePlanAndPrinted) {
  const auto result = test_support::expect_success(
      test_support::call("train --model mlp --dataset synthetic --synthetic-shape 6x6x1 "
                         "--synthetic-size 64 --batch-size 32 --threads 1 --steps 8 --spawn 2 "
                         "--sync params --sync-every 4",
                         std::vector<std::string>{"--local-steps", "3:1"}));
  program::expect_words(result.out, {"Averaging: local steps in proportion 3:1",
                                     "Local steps: 100 + 50 % 24 + 8 samples"});
}

TEST(SharesProgram, AnotherNumberOfWeightsIsOneLine) {
  program::expect_error(
      test_support::call("train --model mlp --dataset synthetic --synthetic-shape 6x6x1 "
                         "--synthetic-size 60 --batch-size 32 --threads 1 --steps 2 --spawn 2",
                         std::vector<std::string>{"--shares", "3:1:1"}),
      78, "--shares 3 weights, 2 ranks:");
}

}  // namespace
