// Ranks that die or freeze: the others name them within a short time, and end.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "backends/backend_error.h"
#include "io/base/threads/stoppable_sleep.h"
#include "io/base/time/deadline.h"
#include "tests/backends/faults/fault_ranks.h"
#include "tests/backends/group_harness.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using backends::ReduceOp;
using base::DType;

// Three ranks work, and rank `target` gets a signal; the others must name it, with the cause, and
// end. Nothing but failure detection ends their calls within the test.
void signal_and_check(int target, int signal, const std::string& cause) {
  fault_ranks::RankProcesses ranks("auto", 3, 3, [](fault_ranks::Rank& rank) {
    rank.join();
    rank.group().set_activity("step 0");
    const auto is_known = [&](int who) {
      return rank.group().statuses().at(static_cast<std::size_t>(who)).activity == "step 0";
    };
    if (rank.who() == 0)
      rank.wait_for("the others' activities", [&] { return is_known(1) && is_known(2); });
    rank.barrier();
    rank.work();
  });
  ASSERT_TRUE(ranks.all_work());
  ranks.send_signal(target, signal);
  for (int who = 0; who < 3; ++who) {
    if (who == target) continue;
    const std::string outcome = ranks.outcome(who);
    EXPECT_EQ(outcome.find("peer: "), 0u) << outcome;
    EXPECT_CONTAINS(outcome, "rank " + std::to_string(target) + " (host ");
    EXPECT_CONTAINS(outcome, "pid " + std::to_string(ranks.pid(target)));
    EXPECT_CONTAINS(outcome, cause);
    // The store's state machines are tested for what is known of rank 0.
    if (target != 0) {
      EXPECT_CONTAINS(outcome, "last activity: step ");
    }
  }
}

TEST(RankFailure, AKilledRankIsNamedByAll) { signal_and_check(1, SIGKILL, "died"); }
TEST(RankFailure, AKilledRankZeroIsNamedByAll) { signal_and_check(0, SIGKILL, "died"); }
TEST(RankFailure, AFrozenRankIsNamedByAll) { signal_and_check(2, SIGSTOP, "no heartbeat"); }
TEST(RankFailure, AFrozenRankZeroIsNamedByAll) { signal_and_check(0, SIGSTOP, "no heartbeat"); }

// Runs three ranks as threads, of which rank 1 ends early, for a reason that it gives unless it is
// ""; returns what each threw.
std::vector<std::string> with_early_end(const std::string& backend, const std::string& why = "") {
  std::vector<std::unique_ptr<backends::Group>> groups(3);
  group_harness::Listener listener;
  if (backend == "inproc")
    groups = backends::make_inproc_groups(3, test_support::deadline_ms(20'000));
  else
    listener = group_harness::open_listener();
  std::atomic<bool> is_known = false;
  return group_harness::outcomes(3, [&](int rank) {
    auto group = std::move(groups[static_cast<std::size_t>(rank)]);  // ends with its rank
    if (!group) {
      backends::GroupOptions o = group_harness::options_for(rank, 3, listener.port);
      group_harness::choose_backend(o, backend);
      if (rank == 0) o.listen.fd = listener.fd;
      group = backends::join_group(o);
    }
    auto communicator = group->make_communicator();
    double value = 1;
    communicator->all_reduce(&value, 1, DType::kF64, ReduceOp::kSum);
    if (rank == 0)
      is_known = test_support::eventually(
          [&] { return group->statuses().at(1).activity == "reading data"; });
    if (rank == 1) {
      group->set_activity("reading data");
      EXPECT_TRUE(test_support::eventually([&] { return is_known.load(); }));
      if (!why.empty()) group->abandon(why);
      communicator.reset();
      group.reset();
      return;
    }
    communicator->all_reduce(&value, 1, DType::kF64, ReduceOp::kSum);
  });
}

TEST(EarlyEnd, ARankThatEndsEarlyIsNamedByTheOthers) {
  for (const std::string& backend : group_harness::backend_names()) {
    if (!group_harness::backend_fits(backend, 3)) continue;
    const auto errors = with_early_end(backend);
    EXPECT_EQ(errors[1], "");
    for (const int r : {0, 2}) {
      const std::string& error = errors[static_cast<std::size_t>(r)];
      EXPECT_NE(error.find("peer: backend " + backend), std::string::npos) << error;
      EXPECT_NE(error.find("all_reduce sum of 1 f64"), std::string::npos) << error;
      EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
      EXPECT_NE(error.find("ended before the others; last activity: reading data"),
                std::string::npos)
          << error;
    }
  }
}

TEST(EarlyEnd, TheOthersSayWhy) {
  for (const std::string& backend : group_harness::backend_names()) {
    if (!group_harness::backend_fits(backend, 3)) continue;
    const auto errors = with_early_end(backend, "cannot write a.ckpt: no space");
    for (const int r : {0, 2}) {
      const std::string& error = errors[static_cast<std::size_t>(r)];
      EXPECT_NE(error.find("ended before the others: cannot write a.ckpt: no space; last activity: "
                           "reading data"),
                std::string::npos)
          << backend << ": " << error;
    }
  }
}

TEST(Statuses, RankZeroKnowsWhatTheOthersDo) {
  const auto errors =
      group_harness::outcomes(2, [listener = group_harness::open_listener(),
                                  both_know = std::make_shared<std::atomic<int>>(0)](int rank) {
        backends::GroupOptions o = group_harness::options_for(rank, 2, listener.port);
        if (rank == 0) o.listen.fd = listener.fd;
        const auto group = backends::join_group(o);
        const auto communicator = group->make_communicator();
        double value = 1;
        if (rank == 1) {
          EXPECT_TRUE(group->statuses().empty());
          group->set_activity("reading data");
          EXPECT_TRUE(test_support::eventually([&] { return both_know->load() == 1; }));
          group->set_activity("step 1");
          communicator->all_reduce(&value, 1, DType::kF64, ReduceOp::kSum);
        } else {
          const auto of_rank_1 = [&] { return group->statuses().at(1); };
          EXPECT_TRUE(
              test_support::eventually([&] { return of_rank_1().activity == "reading data"; }));
          EXPECT_EQ(of_rank_1().progress.waiting_ms, 0);
          both_know->store(1);
          EXPECT_TRUE(test_support::eventually([&] {
            const backends::RankStatus status = of_rank_1();
            return status.activity == "step 1" &&
                   status.progress.call.find("all_reduce sum of 1 f64") != std::string::npos;
          }));
          EXPECT_TRUE(of_rank_1().connected);
          communicator->all_reduce(&value, 1, DType::kF64, ReduceOp::kSum);
        }
        group->leave();
      });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST(EarlyEnd, LeavingInOrderIsNotAFailure) {
  for (const std::string& backend : group_harness::backend_names()) {
    if (!group_harness::backend_fits(backend, 3)) continue;
    for (int last = 0; last < 3; ++last) {
      EXPECT_NO_THROW(group_harness::run_ranks(backend, 3, [&](backends::Group& group) {
        if (group.rank() == last)
          std::this_thread::sleep_for(100ms);  // mostly, the others have left
        group.check();
      }));
    }
  }
}

// Ends with the error that the libraries' own text would hide. All stacks that the process may have
// are taken, those too that a thread has left behind.
TEST(EarlyEnd, AThreadThatCannotBeStartedIsNamedWithTheLimits) {
  std::string failed;
  try {
    group_harness::run_processes("socket", 2, [](backends::Group& group) {
      std::vector<std::jthread> others;
      if (group.rank() == 0) {
        std::size_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        const rlim_t most =
            pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + (std::size_t{4} << 20);
        const rlimit limit{most, most};
        setrlimit(RLIMIT_AS, &limit);
        try {
          for (;;) {
            others.emplace_back([](const std::stop_token& stop) {
              while (base::sleep_unless_stopped(stop, 1s)) {
              }
            });
          }
        } catch (const std::system_error&) {
          // None is left.
        }
      }
      group.make_communicator();
      return std::string();
    });
  } catch (const std::runtime_error& error) {
    failed = error.what();
  }
  EXPECT_VALUES(failed,
                "rank 0: socket, rank 0 of 2 thread: Resource temporarily unavailable; (ulimit -v) "
                "(ulimit -u)");
}

TEST(Abort, WakesAWaitingCollective) {
  for (const std::string& backend : group_harness::backend_names()) {
    if (!group_harness::backend_fits(backend, 2)) continue;
    std::atomic<bool> woken{false};
    std::string error;
    const auto body = [&](backends::Group& group) {
      const auto communicator = group.make_communicator();
      if (group.rank() == 1) {
        EXPECT_TRUE(test_support::eventually([&] { return woken.load(); }));
        return;
      }
      std::thread aborter([&] {
        std::this_thread::sleep_for(200ms);  // mostly, the call waits by now
        communicator->abort("the user wants it");
      });
      float value = 0;
      try {
        communicator->all_reduce(&value, 1, DType::kF32, ReduceOp::kSum);
      } catch (const backends::PeerError& caught) {
        error = caught.what();
      }
      aborter.join();
      woken = true;  // so it was not the other rank's leaving that woke it
    };
    group_harness::run_ranks(backend, 2, body);
    EXPECT_NE(error.find("aborted: the user wants it"), std::string::npos)
        << backend << ": " << error;
  }
}

// A call that begins while the connections are shut down ends too, before the timeout.
TEST(Abort, EndsCallsThatBeginAtTheSameTime) {
  for (int repetition = 0; repetition < 60; ++repetition) {
    const auto start = Clock::now();
    EXPECT_THROW(group_harness::run_ranks(
                     "gloo", 3,
                     [&](backends::Group& group) {
                       const auto communicator = group.make_communicator();
                       std::vector<char> data(40), all(120);
                       communicator->barrier();
                       if (group.rank() == 2) communicator->abort("test");
                       for (;;) {
                         if (repetition % 2 == 0)
                           communicator->broadcast(data.data(), data.size(), 0);
                         else
                           communicator->all_gather(data.data(), data.size(), all.data());
                       }
                     }),
                 std::runtime_error);
    ASSERT_FALSE(test_support::is_past(start, 10s)) << "repetition " << repetition;
  }
}

}  // namespace
