// `engine launch` and the end of things: signals, a launcher that is killed, what must and what may
// outlive it.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/expect_contains.h"
#include "tests/tools/launch/launch_runner.h"

namespace {

using test_support::engine_binary;
using test_support::eventually;
using test_support::processes_with;
using test_support::Running;
using test_support::sleepers;
using test_support::TemporaryDirectory;
using test_support::unique_sleep;
namespace fs = std::filesystem;

std::vector<std::string> shell_job(int workers, const std::string& script,
                                   std::vector<std::string> options = {}) {
  std::vector<std::string> words{engine_binary(), "launch", "--nproc-per-node",
                                 std::to_string(workers)};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--", "bash", "-c", script});
  return words;
}

TEST(Signals, OnceIsPassedOnAndAwaited) {
  Running job(shell_job(
      2, "trap 'echo saved; exit 130' INT; echo ready; for i in {1..600}; do sleep 0.1; done"));
  ASSERT_TRUE(eventually([&] {
    return job.out().find(":0: ready") != std::string::npos &&
           job.out().find(":1: ready") != std::string::npos;
  }));
  kill(job.pid(), SIGINT);
  EXPECT_EQ(job.wait(), 130) << job.err();
  EXPECT_CONTAINS(job.out(), ":0: saved");
  EXPECT_CONTAINS(job.out(), ":1: saved");
  EXPECT_CONTAINS(job.err(), "after signal 2 (Interrupt)");
  EXPECT_LACKS(job.err(), "failed first");
}

TEST(Signals, AStoppedJobIsNotRestarted) {
  Running job(shell_job(1, "echo ready; exec sleep 50", {"--max-restarts", "5"}));
  ASSERT_TRUE(job.writes_out("ready"));
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 143) << job.err();
  EXPECT_LACKS(job.err(), "restart");
}

TEST(Signals, TwiceIsNow) {
  const std::string mark = unique_sleep();
  Running job(shell_job(
      2, "trap 'echo asked' INT; trap '' TERM; while true; do sleep " + mark + " & wait; done"));
  ASSERT_TRUE(eventually([&] { return sleepers(mark) == 2; }));
  kill(job.pid(), SIGINT);
  ASSERT_TRUE(eventually([&] {
    return job.out().find(":0: asked") != std::string::npos &&
           job.out().find(":1: asked") != std::string::npos;
  }));
  EXPECT_GE(sleepers(mark), 2u) << "they have five minutes";
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 143) << job.err();
  EXPECT_VALUES(job.err(), "signal workers killed");
  EXPECT_TRUE(eventually([&] { return sleepers(mark) == 0; }));
}

TEST(Signals, OthersReachTheWorkersOnly) {
  Running job(shell_job(1,
                        "trap 'echo usr1' USR1; trap 'echo hup; exit 7' HUP; echo ready; for i in "
                        "{1..600}; do sleep 0.1; done"));
  ASSERT_TRUE(job.writes_out("ready"));
  kill(job.pid(), SIGUSR1);
  ASSERT_TRUE(job.writes_out("usr1"));
  kill(job.pid(), SIGHUP);
  EXPECT_EQ(job.wait(), 7) << job.err();
  EXPECT_CONTAINS(job.out(), "hup");
}

pid_t guard_of(pid_t launcher) {
  const std::string id = std::to_string(launcher);
  std::ifstream children("/proc/" + id + "/task/" + id + "/children");
  for (std::string child; children >> child;)
    if (test_support::read_text("/proc/" + child + "/comm") == "engine-guard\n")
      return std::stoi(child);
  return 0;
}

// Half of the launchers are killed when all runs, the others at some moment of their start.
TEST(Orphans, NoneAfterAHundredKilledLaunchers) {
  const TemporaryDirectory folder;
  const std::string mark = unique_sleep();
  for (int i = 0; i < 100; ++i) {
    Running job(shell_job(2, "(sleep " + mark + " & sleep " + mark + ") & exec sleep " + mark),
                {{"XDG_RUNTIME_DIR", folder.path().string()}});
    if (i % 2 == 0) {
      ASSERT_TRUE(eventually([&] { return sleepers(mark) == 6; })) << i << ": " << job.err();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(600 * i));
    }
    kill(job.pid(), SIGKILL);
    EXPECT_EQ(job.wait(), 137);
    ASSERT_TRUE(eventually([&] { return processes_with(mark).empty(); })) << i;
  }
  EXPECT_TRUE(eventually([&] { return fs::is_empty(folder.path()); }));  // no secret is left either
}

TEST(Orphans, WhatWorkersLeftBehindEndsWithTheJob) {
  const std::string mark = unique_sleep();
  Running job(shell_job(2, "sleep " + mark + " & exit 0"));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_TRUE(eventually([&] { return sleepers(mark) == 0; }));
}

TEST(Orphans, MayLiveWhenToldSo) {
  const std::string mark = unique_sleep();
  Running job(shell_job(2, "exec sleep " + mark, {"--no-kill-orphans"}));
  ASSERT_TRUE(eventually([&] { return sleepers(mark) == 2; }));
  const pid_t guard = guard_of(job.pid());
  ASSERT_NE(guard, 0);
  kill(job.pid(), SIGKILL);
  EXPECT_EQ(job.wait(), 137);
  // Only the guard kills what is left of a job, before it ends.
  ASSERT_TRUE(eventually([&] { return test_support::command_line_of(guard).empty(); }));
  EXPECT_EQ(sleepers(mark), 2u);
  for (const pid_t pid : processes_with(mark)) kill(pid, SIGKILL);
  EXPECT_TRUE(eventually([&] { return sleepers(mark) == 0; }));
}

}  // namespace
