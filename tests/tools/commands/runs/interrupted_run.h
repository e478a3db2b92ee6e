// For tests of the real program: a run on two ranks that ends before its last step, and continues.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_names.h"
#include "tests/support/command_words.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"

namespace interrupted_run {

using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine_binary;
using test_support::expect_success;
using test_support::run_command;
using test_support::TemporaryDirectory;
namespace fs = std::filesystem;

inline std::vector<std::string> training(const std::string& folder, const std::string& steps,
                                         const std::vector<std::string>& more) {
  std::vector<std::string> arguments =
      argv(engine_binary(),
           "train --model mlp --dataset synthetic --synthetic-shape 6x6x1 --synthetic-size 96 "
           "--batch-size 16 --threads 1 --eval-every 0 --save-every 0 --save-dir",
           folder, "--steps", steps);
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

enum class Receiver { kParent, kRank0, kRank1 };

// Runs for ever on two ranks until `signal` is sent; `frozen`: rank 1 is stopped before.
// `folder`.metrics has its metrics.
inline CommandResult interrupted(const std::string& folder, const std::vector<std::string>& more,
                                 int signal, Receiver receiver,
                                 const std::map<std::string, std::string>& environment = {},
                                 bool frozen = false) {
  const std::string metrics = folder + ".metrics";
  CommandResult result;
  std::atomic<bool> ended{false};
  std::thread runner([&] {
    std::vector<std::string> options{"--spawn", "2", "--log-every", "2", "--metrics", metrics};
    options.insert(options.end(), more.begin(), more.end());
    result = run_command(training(folder, "100000000", options), environment, 40'000);
    ended = true;
  });
  const auto steps = [&] {
    return fs::exists(metrics) ? std::ranges::count(test_support::read_text(metrics), '\n') : 0;
  };
  pid_t parent = 0;
  std::vector<int> workers;
  EXPECT_TRUE(test_support::eventually([&] {
    for (const pid_t pid : test_support::workers_of(getpid()))
      workers = test_support::workers_of(parent = pid);
    return ended || (workers.size() == 2 && steps() > 5);
  }));
  if (workers.size() == 2 && frozen) kill(workers.back(), SIGSTOP);
  if (workers.size() == 2)
    kill(receiver == Receiver::kParent  ? parent
         : receiver == Receiver::kRank0 ? workers.front()
                                        : workers.back(),
         signal);
  runner.join();
  EXPECT_EQ(workers.size(), 2u) << result.err;
  return result;
}

// The run in folder/run, with these options, stopped after `step`, goes on for `more` steps and
// ends like one that was never stopped.
inline void expect_equal_bits_later(const TemporaryDirectory& folder, std::int64_t step,
                                    std::int64_t more,
                                    const std::vector<std::string>& options = {}) {
  const std::string end = std::to_string(step + more);
  std::vector<std::string> resumed{"--spawn", "2", "--resume", "auto"}, whole{"--spawn", "2"};
  resumed.insert(resumed.end(), options.begin(), options.end());
  whole.insert(whole.end(), options.begin(), options.end());
  expect_success(run_command(training(folder / "run", end, resumed)));
  expect_success(run_command(training(folder / "whole", end, whole)));
  const std::string name = "/" + io::checkpoint_file_name(step + more);
  expect_success(call("verify", (folder / "run") + name, (folder / "whole") + name));
}

// Returns the last step that the metrics report.
inline std::int64_t last_reported_step(const std::string& metrics) {
  const std::string text = test_support::read_text(metrics), key = R"("event":"step","step":)";
  const std::size_t at = text.rfind(key);
  EXPECT_NE(at, std::string::npos) << text;
  return at == std::string::npos ? 0 : std::stoll(text.substr(at + key.size()));
}

}  // namespace interrupted_run
