// Many starts, in a row and at once: no port is missed, no two jobs meet, nothing is left over.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <thread>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/tools/launch/launch_runner.h"

namespace {

using test_support::CommandResult;
using test_support::expect_success;
using test_support::TemporaryDirectory;

class LaunchStress : public testing::Test {
 protected:
  CommandResult start() const {
    return test_support::launch(
        {"--nproc-per-node", "2", "train", "--model", "mlp", "--dataset", "synthetic",
         "--synthetic-shape", "4x4x1", "--synthetic-size", "8", "--batch-size", "4", "--steps", "1",
         "--threads", "1", "--metrics", mark_},
        {{"XDG_RUNTIME_DIR", folder_.path().string()}, {"TMPDIR", folder_.path().string()}});
  }
  void expect_nothing_left() const {
    EXPECT_TRUE(test_support::processes_with(mark_).empty());
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  }
  const TemporaryDirectory folder_, output_;
  const std::string mark_ = output_ / "metrics.jsonl";
};

TEST_F(LaunchStress, FiftyStartsInARow) {
  for (int i = 0; i < 50; ++i) {
    const CommandResult r = expect_success(start());
    ASSERT_CONTAINS(r.out, "2 ranks");
  }
  expect_nothing_left();
}

TEST_F(LaunchStress, EightJobsAtOnce) {
  std::mutex mutex;
  std::vector<CommandResult> results;
  std::vector<std::thread> threads;
  for (int job = 0; job < 8; ++job)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        CommandResult r = start();
        const std::lock_guard lock(mutex);
        results.push_back(std::move(r));
      }
    });
  for (std::thread& t : threads) t.join();
  for (const CommandResult& r : results) {
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_CONTAINS(r.out, "2 ranks");
  }
  expect_nothing_left();
}

}  // namespace
