// Ranks as child processes: what is said when they fail.
#include "tools/launch/workers/worker_processes.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <csignal>

#include "backends/backend_error.h"
#include "engine/core/error.h"
#include "engine/train/replicas/replica_sync.h"
#include "io/base/files/io_error.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tools/launch/workers/stop_signals.h"
#include "tools/launch/workers/worker_group.h"
#include "tools/report/output/exit_codes.h"

namespace {

struct Said {
  int code = 0;
  std::string err;
};

Said run(const std::function<int(const tools::WorkerPlace&)>& body, int count = 2) {
  testing::internal::CaptureStderr();
  const int code = tools::run_worker_processes(count, body);
  return {code, testing::internal::GetCapturedStderr()};
}

TEST(WorkerProcesses, WhatARankSaysItselfIsSaidOnce) {
  const Said said = run([](const tools::WorkerPlace& place) -> int {
    if (place.rank == 0) throw io::DataError("row 3 is bad");
    for (;;) pause();
  });
  EXPECT_EQ(said.code, 65);
  EXPECT_EQ(said.err, "engine: error: rank 0: row 3 is bad\n");
}

// It is ended because another rank, which it has told, is gone already.
TEST(WorkerProcesses, WhatARankHasToldAnotherIsSaidWhereItsOwnWordsAreLost) {
  const Said said = run([](const tools::WorkerPlace& place) -> int {
    if (place.rank == 1) throw engine::RemoteError(65, "rank 0 (host n1, pid 7): row 3 is bad");
    for (;;) pause();
  });
  EXPECT_EQ(said.code, 65);
  EXPECT_EQ(said.err, "engine: error: rank 0 (host n1, pid 7): row 3 is bad\n");
}

// It is ended after it has reported, because the other rank, which it has told, is gone already.
TEST(WorkerProcesses, ARankThatIsEndedAfterItHasReportedHasTheCodeOfItsError) {
  static int reported[2];
  ASSERT_EQ(pipe(reported), 0);
  struct SlowToEnd : io::DataError {
    using DataError::DataError;
    ~SlowToEnd() override {
      const char byte = 0;
      EXPECT_EQ(write(reported[1], &byte, 1), 1);
      for (;;) pause();
    }
  };
  const Said said = run([](const tools::WorkerPlace& place) -> int {
    if (place.rank == 1) throw SlowToEnd("row 3 is bad");
    char byte = 0;
    EXPECT_EQ(read(reported[0], &byte, 1), 1);
    throw engine::RemoteError(65, "rank 1: row 3 is bad");
  });
  close(reported[0]);
  close(reported[1]);
  EXPECT_EQ(said.code, 65);
  EXPECT_EQ(said.err, "engine: error: rank 1: row 3 is bad\n");
}

// The rank that fails lets its group go before it reports, so that others may be faster.
TEST(WorkerProcesses, ThatOthersMissARankIsNotSaidBesideTheCause) {
  int reported[2];
  ASSERT_EQ(pipe(reported), 0);
  const Said said = run([&](const tools::WorkerPlace& place) -> int {
    char byte = 0;
    if (place.rank == 0) {
      EXPECT_EQ(read(reported[0], &byte, 1), 1);
      throw backends::PeerError("no memory");
    }
    EXPECT_EQ(write(reported[1], &byte, 1), 1);
    throw backends::LostPeerError("rank 0 ended before the others");
  });
  close(reported[0]);
  close(reported[1]);
  EXPECT_EQ(said.code, 69);
  EXPECT_EQ(said.err, "engine: error: rank 0: no memory\n");
}

// It waits for something, and is asked twice to end: the user has sent no signal.
TEST(WorkerProcesses, ARankThatIsEndedAfterTheLossOfAnotherPrintsNothing) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const Said said = run(
      [&](const tools::WorkerPlace& place) -> int {
        char byte = 0;
        if (place.rank == 1) {
          EXPECT_EQ(read(ready[0], &byte, 1), 1);
          raise(SIGKILL);
        }
        if (place.rank == 0) throw backends::LostPeerError("rank 1 died");
        tools::install_stop_signals();
        EXPECT_EQ(write(ready[1], &byte, 1), 1);
        for (;;) pause();
      },
      3);
  close(ready[0]);
  close(ready[1]);
  EXPECT_EQ(said.code, 128 + SIGKILL);
  EXPECT_EQ(said.err.find("signal: "), std::string::npos) << said.err;
}

TEST(WorkerProcesses, TheCauseIsTheFirstLine) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const Said said = run([&](const tools::WorkerPlace& place) -> int {
    char byte = 0;
    if (place.rank == 1) {
      EXPECT_EQ(read(ready[0], &byte, 1), 1);
      raise(SIGKILL);
    }
    std::signal(SIGTERM, SIG_IGN);  // it is ended for the death, and may be slower to speak
    EXPECT_EQ(write(ready[1], &byte, 1), 1);
    throw backends::LostPeerError("rank 1 died in step 12");
  });
  close(ready[0]);
  close(ready[1]);
  EXPECT_EQ(said.code, 137);
  EXPECT_EQ(said.err.rfind("engine: error: rank 1: killed by signal 9 (Killed)", 0), 0u)
      << said.err;
  EXPECT_NE(said.err.find("\nengine: error: rank 0: rank 1 died in step 12\n"), std::string::npos)
      << said.err;
}

// The one that would save for all is stopped, and the others have ended for want of it.
// In an elastic job, where the loss of a rank is no failure. All ranks find a difference, some of
// them later than others.
TEST(WorkerProcesses, RanksThatDifferEndAnElasticJobWithTheirCode) {
  testing::internal::CaptureStderr();
  const int code = tools::run_worker_processes(
      3,
      [](const tools::WorkerPlace& place) -> int {
        if (place.rank == 0) raise(SIGKILL);
        if (place.rank == 1) throw engine::DesyncError("desync after step 4");
        for (;;) pause();
      },
      /*least=*/1);
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 76);
  EXPECT_NE(err.find("engine: error: rank 1: desync after step 4\n"), std::string::npos) << err;
  EXPECT_EQ(err.find("ranks are left"), std::string::npos) << err;
}

TEST(WorkerGroup, DoesNotRestartAWorkerWhoseEndEndsAll) {
  for (const bool was_restarted : {false, true}) {
    int asked = 0, has_differed[2];
    ASSERT_EQ(pipe(has_differed), 0);
    tools::SignalInbox inbox;
    tools::GuardProcess guard(true);
    tools::GroupRules rules;
    rules.min_workers = 1;
    rules.longest_pause = std::chrono::milliseconds(1);
    rules.again = [&](std::size_t, const tools::WorkerEnd& end) -> std::function<int()> {
      ++asked;
      if (end.code == tools::kExitMismatch) {
        close(has_differed[1]);
        return {};
      }
      return [] { return tools::kExitMismatch; };
    };
    tools::WorkerGroup group(guard, inbox, rules);
    group.start([was_restarted] { return was_restarted ? 1 : tools::kExitMismatch; });
    if (was_restarted)  // a job continues without a rank that differs alone
      group.start([&has_differed] {
        close(has_differed[1]);
        char byte = 0;
        return read(has_differed[0], &byte, 1) == 0 ? tools::kExitOk : 1;
      });
    const tools::GroupOutcome outcome = group.wait({});
    EXPECT_EQ(outcome.code(), was_restarted ? 0 : tools::kExitMismatch);
    EXPECT_EQ(asked, was_restarted ? 2 : 0);
    close(has_differed[0]);
  }
}

TEST(WorkerProcesses, AStoppedSaverIsNotWaitedForAfterASignal) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const auto start = std::chrono::steady_clock::now();
  const Said said = run([&](const tools::WorkerPlace& place) -> int {
    std::signal(SIGTERM, SIG_IGN);
    char byte = 0;
    if (place.rank == 0 && write(ready[1], &byte, 1) == 1)
      for (;;) raise(SIGSTOP);
    if (read(ready[0], &byte, 1) == 1) kill(getppid(), SIGTERM);
    return 69;
  });
  close(ready[0]);
  close(ready[1]);
  EXPECT_EQ(said.code, 69);
  EXPECT_FALSE(test_support::is_past(start, std::chrono::seconds(60)));  // instead of minutes
}

volatile std::sig_atomic_t stop_requests = 0;

class Savers : public testing::TestWithParam<int> {};

// One of ranks 0 and 1 fails, rank 2 does not end by itself, and the other one of 0 and 1 saves
// until rank 2 has been killed.
TEST_P(Savers, OneIsToldOnceAndNotKilledWithTheOthersAfterAFailure) {
  const int failing = GetParam();
  stop_requests = 0;
  int other[2], ready[2], saved[2];
  ASSERT_EQ(pipe(other), 0);
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(saved), 0);
  testing::internal::CaptureStderr();
  const int code = tools::run_worker_processes(3, [&](const tools::WorkerPlace& place) -> int {
    char byte = 0;
    if (place.rank == failing) {
      for (int others = 0; others < 2; ++others) EXPECT_EQ(read(ready[0], &byte, 1), 1);
      throw io::DataError("row 3 is bad");
    }
    std::signal(SIGTERM, [](int) { stop_requests = stop_requests + 1; });
    EXPECT_EQ(write(ready[1], &byte, 1), 1);
    if (place.rank == 2) {
      const pid_t own = getpid();
      EXPECT_EQ(write(other[1], &own, sizeof own), static_cast<ssize_t>(sizeof own));
      for (;;) pause();
    }
    pid_t pid = 0;
    EXPECT_EQ(read(other[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
    EXPECT_TRUE(
        test_support::eventually([&] { return test_support::command_line_of(pid).empty(); }));
    const char times = static_cast<char>(stop_requests);
    EXPECT_EQ(write(saved[1], &times, 1), 1);
    return 69;
  });
  const std::string err = testing::internal::GetCapturedStderr();
  close(saved[1]);
  char times = 0;
  EXPECT_EQ(read(saved[0], &times, 1), 1) << "the saver was killed: " << err;
  EXPECT_EQ(times, 1);
  EXPECT_EQ(code, 65) << err;
  for (const int end : {other[0], other[1], ready[0], ready[1], saved[0]}) close(end);
}

INSTANTIATE_TEST_SUITE_P(Failing, Savers, testing::Values(0, 1));

}  // namespace
