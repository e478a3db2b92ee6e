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
#include "tests/backends/group_harness.h"
#include "tests/support/expect_contains.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using backends::ReduceOp;
using base::DType;

// A forked rank and its output.
struct Rank {
  pid_t pid = -1;
  int out = -1;
  std::string text;
};

constexpr auto kHeartbeat = 300ms;  // scaled

// Reduces until an error occurs, and writes that error.
void work(int rank, int world_size, const group_harness::Listener& listener, int out) {
  const auto say = [out](const std::string& text) {
    [[maybe_unused]] const ssize_t n = write(out, text.data(), text.size());
  };
  try {
    backends::GroupOptions o = group_harness::options_for(rank, world_size, listener.port);
    o.heartbeat_ms = static_cast<int>(test_support::deadline(kHeartbeat).count());
    if (rank == 0)
      o.listen.fd = listener.fd;
    else
      close(listener.fd);
    const auto group = backends::join_group(o);
    const auto communicator = group->make_communicator();
    std::vector<float> data(100'000, 1.f);
    // Ready once a heartbeat has carried the activity to rank 0.
    const auto reported = base::deadline_in(std::chrono::milliseconds(3 * o.heartbeat_ms));
    bool ready = false;
    for (int step = 0;; ++step) {
      if (step % 50 == 0) group->set_activity("step " + std::to_string(step));
      if (!ready && base::has_passed(reported)) {
        say("ready\n");
        ready = true;
      }
      communicator->all_reduce(data.data(), data.size(), DType::kF32, ReduceOp::kMax);
      group->check();
    }
  } catch (const backends::PeerError& error) {
    say(std::string("peer: ") + error.what() + "\n");
  } catch (const std::exception& error) {
    say(std::string("other: ") + error.what() + "\n");
  }
}

class RankFailure : public ::testing::Test {
 protected:
  void start(int world_size) {
    const group_harness::Listener listener = group_harness::open_listener();
    const int lifetime = test_support::deadline_ms(30'000) / 1000;
    for (int r = 0; r < world_size; ++r) {
      int ends[2];
      ASSERT_EQ(pipe(ends), 0);
      const pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) {
        alarm(static_cast<unsigned>(lifetime));
        work(r, world_size, listener, ends[1]);
        _exit(69);
      }
      close(ends[1]);
      ranks_.push_back({pid, ends[0], ""});
    }
    close(listener.fd);
    for (Rank& r : ranks_) ASSERT_TRUE(read_until(r, "ready\n", 10s)) << r.text;
    test_support::pause(300ms);  // until their activities are known
  }
  void TearDown() override {
    for (Rank& r : ranks_) {
      kill(r.pid, SIGKILL);
      waitpid(r.pid, nullptr, 0);
      close(r.out);
    }
  }
  static bool read_until(Rank& rank, const std::string& part, std::chrono::milliseconds time) {
    return read_until(rank, part, Clock::now(), time);
  }
  static bool read_until(Rank& rank, const std::string& part, Clock::time_point start,
                         std::chrono::milliseconds time) {
    while (rank.text.find(part) == std::string::npos) {
      pollfd p{rank.out, POLLIN, 0};
      if (poll(&p, 1, 20) <= 0) {
        if (test_support::is_past(start, time)) return false;
        continue;
      }
      char buffer[4096];
      const ssize_t n = read(rank.out, buffer, sizeof buffer);
      if (n <= 0) return false;
      rank.text.append(buffer, static_cast<std::size_t>(n));
    }
    return true;
  }
  // Sends a signal to one rank; the others must name it in time, and then end.
  void signal_and_check(int target, int signal, std::chrono::milliseconds time,
                        const std::string& cause) {
    const auto before = Clock::now();
    kill(ranks_[static_cast<std::size_t>(target)].pid, signal);
    const std::string name = "rank " + std::to_string(target) + " (host ";
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (static_cast<int>(r) == target) continue;
      Rank& rank = ranks_[r];
      EXPECT_TRUE(read_until(rank, "peer: ", before, time) && read_until(rank, "\n", 1s))
          << "rank " << r << ": " << rank.text;
      EXPECT_NE(rank.text.find(name), std::string::npos) << rank.text;
      EXPECT_NE(
          rank.text.find("pid " + std::to_string(ranks_[static_cast<std::size_t>(target)].pid)),
          std::string::npos)
          << rank.text;
      EXPECT_NE(rank.text.find(cause), std::string::npos) << rank.text;
      EXPECT_NE(rank.text.find("last activity: step "), std::string::npos) << rank.text;
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (static_cast<int>(r) == target) continue;
      int status = 0;
      (void)test_support::eventually([&] { return waitpid(ranks_[r].pid, &status, WNOHANG) != 0; });
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 69)
          << "rank " << r << " hangs after the failure, or died: " << status;
    }
  }
  std::vector<Rank> ranks_;
};

TEST_F(RankFailure, AKilledRankIsNamedByAllWithinTwoSeconds) {
  start(3);
  signal_and_check(1, SIGKILL, 2s, "died");
}

TEST_F(RankFailure, AKilledRankZeroIsNamedByAllWithinTwoSeconds) {
  start(3);
  signal_and_check(0, SIGKILL, 2s, "died");
}

TEST_F(RankFailure, AFrozenRankIsNamedWithinAFewHeartbeats) {
  start(3);
  signal_and_check(2, SIGSTOP, 5 * kHeartbeat + 1s, "no heartbeat");
}

TEST_F(RankFailure, AFrozenRankZeroIsNamedWithinAFewHeartbeats) {
  start(3);
  signal_and_check(0, SIGSTOP, 5 * kHeartbeat + 1s, "no heartbeat");
}

// Runs three ranks as threads, of which rank 1 ends early, for a reason that it gives unless it is
// ""; returns what each threw.
std::vector<std::string> with_early_end(const std::string& backend, const std::string& why = "") {
  std::vector<std::unique_ptr<backends::Group>> groups(3);
  group_harness::Listener listener;
  if (backend == "inproc")
    groups = backends::make_inproc_groups(3, test_support::deadline_ms(20'000));
  else
    listener = group_harness::open_listener();
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
    if (rank == 1) group->set_activity("reading data");
    test_support::pause(300ms);  // until rank 1's activity is known
    if (rank == 1) {
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
    for (int i = 0; i < 5; ++i) {
      EXPECT_NO_THROW(group_harness::run_ranks(backend, 3, [&](backends::Group& group) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30 * ((group.rank() + i) % 3)));
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
  EXPECT_CONTAINS(failed,
                  "rank 0: backend socket, rank 0 of 2, connecting the ranks: cannot start a "
                  "thread: Resource temporarily unavailable; raise the limit on memory (ulimit -v) "
                  "or processes (ulimit -u)");
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
        std::this_thread::sleep_for(200ms);
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
