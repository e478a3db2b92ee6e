// file://: the file is created atomically and private, removed at the end, and stale files are
// replaced.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "backends/backend_error.h"
#include "backends/identity/join.h"
#include "backends/store/private_files.h"
#include "tests/backends/group_harness.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"
#include "tests/support/free_port.h"
#include "tests/support/test_clock.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"

namespace {

using namespace std::chrono_literals;
using backends::GroupOptions;
using backends::JoinedStore;
using group_harness::outcomes;

class FileRendezvous : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("ENGINE_SECRET");
    unsetenv("ENGINE_SECRET_FILE");
  }
  GroupOptions options(int rank, int world_size) {
    GroupOptions o;
    o.init_method = "file://" + path_;
    o.rank = rank;
    o.world_size = world_size;
    o.local_world_size = world_size;
    o.rendezvous_timeout_ms = test_support::deadline_ms(60'000);
    o.notice = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      notices_.push_back(line);
    };
    return o;
  }
  std::vector<std::string> run(int world_size) {
    return outcomes(world_size, [&](int rank) {
      if (rank == 0)
        std::this_thread::sleep_for(
            100ms);  // so that the others look for the file before it exists
      JoinedStore joined = backends::join_store(options(rank, world_size));
      struct stat status {};
      EXPECT_EQ(stat(path_.c_str(), &status), 0);
      EXPECT_EQ(status.st_mode & 0777, 0600u);
      joined.store->add("n", 1);
      joined.store->leave(test_support::deadline(5s));
    });
  }
  bool folder_is_empty() { return std::filesystem::is_empty(folder_.path()); }

  test_support::TemporaryDirectory folder_;
  const std::string path_ = folder_ / "rendezvous";
  std::mutex mutex_;
  std::vector<std::string> notices_;
};

TEST_F(FileRendezvous, TwoRunsInARowLeaveNothingBehind) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(run(3), std::vector<std::string>(3));
    EXPECT_TRUE(folder_is_empty());
  }
  EXPECT_TRUE(notices_.empty()) << notices_[0];
}

// Rank 0 waits for rank 1, which looks for the file only after it was removed.
TEST_F(FileRendezvous, AFileThatIsRemovedWhileRank0WaitsIsWrittenAgain) {
  std::atomic<bool> removed{false};
  const auto errors = outcomes(2, [&](int rank) {
    if (rank == 1) {
      EXPECT_TRUE(test_support::eventually([&] { return std::filesystem::exists(path_); }));
      EXPECT_TRUE(std::filesystem::remove(path_));
      removed = true;
    }
    backends::join_store(options(rank, 2)).store->leave(test_support::deadline(5s));
  });
  EXPECT_TRUE(removed);
  EXPECT_EQ(errors, std::vector<std::string>(2));
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_VALUES(notices_[0], path_ + " removed: written");
  EXPECT_TRUE(folder_is_empty());
}

TEST_F(FileRendezvous, Rank0EndsWhenItsFileCannotBeWrittenAgainOrIsOfAnotherJob) {
  for (const bool is_replaced : {true, false}) {
    const std::string folder = folder_ / "inner", file = folder + "/rendezvous";
    std::filesystem::create_directory(folder);
    GroupOptions o = options(0, 2);
    o.init_method = "file://" + file;
    std::string error;
    std::thread rank_0([&] {
      error = test_support::error_of<backends::Error>([&] { (void)backends::join_store(o); });
    });
    EXPECT_TRUE(test_support::eventually([&] { return std::filesystem::exists(file); }));
    if (is_replaced) {
      std::string reason;
      std::optional<backends::Rendezvous> other = backends::read_rendezvous(file, reason);
      ASSERT_TRUE(other) << reason;
      other->nonce = "another";
      other->pid = 4711;
      std::filesystem::remove(file);
      ASSERT_TRUE(backends::publish_private_file(file, backends::rendezvous_text(*other),
                                                 backends::Publish::kReplace));
    } else {
      std::filesystem::remove_all(folder);
    }
    rank_0.join();
    EXPECT_VALUES(error, is_replaced ? file + " replaced pid 4711" : "write " + file);
    std::filesystem::remove_all(folder);
  }
}

// One that other jobs may have too is in no job's file; who lacks it is told so.
TEST_F(FileRendezvous, AGivenSecretIsNotInTheFile) {
  std::atomic<bool> cancelled{false};
  const auto errors = outcomes(2, [&](int rank) {
    GroupOptions o = options(rank, 2);
    if (rank == 0) {
      o.job.secret = group_harness::kSecret;
      o.cancelled = [&] { return cancelled.load(); };
    } else {
      o.rendezvous_timeout_ms = 200;
      std::string reason;
      std::optional<backends::Rendezvous> file;
      EXPECT_TRUE(test_support::eventually(
          [&] { return (file = backends::read_rendezvous(path_, reason)).has_value(); }));
      EXPECT_EQ(file->secret_hex, "");
      EXPECT_EQ(test_support::read_text(path_).find(group_harness::kSecret), std::string::npos);
    }
    try {
      backends::join_store(o);
    } catch (const backends::Error&) {
      cancelled = true;
      throw;
    }
  });
  EXPECT_VALUES(errors[1], path_ + " secret ENGINE_SECRET_FILE ENGINE_SECRET");
  EXPECT_TRUE(folder_is_empty());

  setenv("ENGINE_SECRET", group_harness::kSecret, 1);
  EXPECT_EQ(run(2), std::vector<std::string>(2));
  unsetenv("ENGINE_SECRET");
}

TEST_F(FileRendezvous, TheFileGoesWhenTheGroupDoesNotForm) {
  GroupOptions o = options(0, 2);
  o.rendezvous_timeout_ms = 200;
  EXPECT_THROW(backends::join_store(o), backends::PeerError);
  EXPECT_TRUE(folder_is_empty());
}

TEST_F(FileRendezvous, TheLeftoverOfAKilledRunIsReplacedWithANotice) {
  const pid_t child = fork();
  if (child == 0) {
    GroupOptions o = options(0, 2);
    o.notice = nullptr;
    try {
      backends::join_store(o);
    } catch (...) {
    }
    _exit(1);
  }
  std::string reason;
  EXPECT_TRUE(test_support::eventually(
      [&] { return backends::read_rendezvous(path_, reason).has_value(); }));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(backends::read_rendezvous(path_, reason));
  EXPECT_EQ(run(2), std::vector<std::string>(2));
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_NE(notices_[0].find("replacing rendezvous file"), std::string::npos) << notices_[0];
  EXPECT_NE(notices_[0].find("pid " + std::to_string(child)), std::string::npos) << notices_[0];
  EXPECT_TRUE(folder_is_empty());
}

TEST_F(FileRendezvous, ALeftoverOfAnotherHostWhosePortIsClosedIsReplaced) {
  backends::Rendezvous old;
  old.endpoint = {"127.0.0.1", test_support::free_port()};
  old.nonce = old.secret_hex = std::string(64, '1');
  old.pid = 1;
  old.host = old.host_id = "elsewhere";
  const backends::RendezvousFile left(path_, old, [](const auto&) { return true; }, {});
  EXPECT_EQ(run(2), std::vector<std::string>(2));
  EXPECT_EQ(notices_.size(), 1u);
}

// Several jobs find the same stale file at once: one of them gets the file and keeps it.
TEST_F(FileRendezvous, OfJobsThatRaceForALeftoverOneWins) {
  for (int repetition = 0; repetition < 3; ++repetition) {
    backends::Rendezvous old;
    old.endpoint = {"127.0.0.1", test_support::free_port()};
    old.nonce = old.secret_hex = std::string(64, '1');
    old.pid = 1;
    old.host = old.host_id = "elsewhere";
    const backends::RendezvousFile left(path_, old, [](const auto&) { return true; }, {});
    std::atomic<int> ready{0}, losers{0};
    std::atomic<bool> waits{false};  // the winner
    test_support::TestClock clock;
    const auto start = std::chrono::steady_clock::now();
    const test_support::PassingTime to_notices(clock, 5s, [] { return true; }),
        to_the_end(clock, 24h, [&] {
          return (waits && losers == 5) || test_support::is_past(start, 20s);  // if two have won
        });
    const auto errors = outcomes(6, [&](int job) {
      GroupOptions o = options(0, 2);
      o.job.id = "job " + std::to_string(job);
      o.rendezvous_timeout_ms = 24 * 3'600'000;
      o.notice = [&](const std::string& line) {
        if (line.starts_with("waiting for 1 of 2 ranks: 1")) waits = true;
      };
      for (++ready; ready < 6;) std::this_thread::yield();
      try {
        backends::join_store(o, clock);
      } catch (...) {
        ++losers;
        throw;
      }
    });
    int winners = 0;
    for (const std::string& error : errors) {
      const bool won = error.find("missing 1 of 2 ranks: 1") != std::string::npos;
      winners += won ? 1 : 0;
      if (!won) {
        EXPECT_VALUES(error, path_ + " running pid " + std::to_string(getpid()));
      }
    }
    EXPECT_EQ(winners, 1);
    EXPECT_TRUE(folder_is_empty());
  }
}

// A job that has read the stale file may be late: it must not remove the file of another job.
TEST_F(FileRendezvous, AJobThatIsLateRemovesNoNewFile) {
  const auto of = [](const std::string& nonce) {
    backends::Rendezvous run;
    run.endpoint = {"127.0.0.1", 1};
    run.nonce = run.secret_hex = std::string(64, nonce[0]);
    run.pid = 1;
    run.host = run.host_id = "elsewhere";
    return run;
  };
  const backends::RendezvousFile left(path_, of("1"), [](const auto&) { return true; }, {});
  std::optional<backends::RendezvousFile> second;
  EXPECT_THROW(backends::RendezvousFile(
                   path_, of("3"),
                   [&](const backends::Rendezvous& found) {
                     if (found.nonce[0] != '1') return true;
                     // Meanwhile another job finds the stale file, too, and replaces it.
                     second.emplace(
                         path_, of("2"), [](const auto&) { return false; },
                         [](const std::string&) {});
                     return false;
                   },
                   [&](const std::string& line) { ADD_FAILURE() << line; }),
               backends::PeerError);
  std::string reason;
  const std::optional<backends::Rendezvous> now = backends::read_rendezvous(path_, reason);
  ASSERT_TRUE(now) << reason;
  EXPECT_EQ(now->nonce[0], '2');
}

TEST_F(FileRendezvous, ALeftoverWhosePortIsNowAnotherProgramsIsReplaced) {
  const backends::Socket other =
      backends::listen_on({"127.0.0.1", 0});  // accepts in the kernel, never answers
  backends::Rendezvous old;
  old.endpoint = backends::local_endpoint(other.fd());
  old.nonce = old.secret_hex = std::string(64, '1');
  old.pid = 1;
  old.host = old.host_id = "elsewhere";
  const backends::RendezvousFile left(path_, old, [](const auto&) { return true; }, {});
  EXPECT_EQ(run(2), std::vector<std::string>(2));
  EXPECT_EQ(notices_.size(), 1u);
  EXPECT_TRUE(folder_is_empty());
}

TEST_F(FileRendezvous, AFileOfARunningJobIsNotReplaced) {
  test_support::TestClock clock;
  std::atomic<bool> was_rejected{false};
  const test_support::PassingTime time(clock, 600s, [&] { return was_rejected.load(); });
  std::thread first(
      [&] { EXPECT_THROW(backends::join_store(options(0, 2), clock), backends::PeerError); });
  std::string reason;
  while (!backends::read_rendezvous(path_, reason)) std::this_thread::sleep_for(10ms);
  try {
    backends::join_store(options(0, 2));
    ADD_FAILURE();
  } catch (const backends::PeerError& error) {
    EXPECT_VALUES(error.what(), path_ + " running job");
  }
  was_rejected = true;
  first.join();
}

TEST_F(FileRendezvous, ForeignFilesAreNeitherReadNorReplaced) {
  test_support::write_text(path_, "my thesis");
  chmod(path_.c_str(), 0600);
  EXPECT_THROW(backends::join_store(options(0, 2)), backends::ConfigurationError);
  EXPECT_EQ(test_support::read_text(path_), "my thesis");
  chmod(path_.c_str(), 0644);
  EXPECT_THROW(backends::join_store(options(1, 2)), backends::AuthenticationError);
}

TEST_F(FileRendezvous, OfAnotherUserIsSaidToBe) {
  const auto refusal = [&] {
    try {
      backends::join_store(options(1, 2));
    } catch (const backends::AuthenticationError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  std::filesystem::create_symlink("/tmp", path_);
  EXPECT_NE(refusal().find(path_ + " is a symbolic link"), std::string::npos) << refusal();
  std::filesystem::remove(path_);
  if (geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  test_support::write_text(path_, "x");
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  ASSERT_EQ(chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_VALUES(refusal(), path_ + " user 12345, (0)");
}

TEST_F(FileRendezvous, AFolderIsNoFile) {
  std::filesystem::create_directory(path_);
  for (const int rank : {0, 1}) {
    try {
      backends::join_store(options(rank, 2));
      ADD_FAILURE() << "rank " << rank;
    } catch (const backends::ConfigurationError& error) {
      EXPECT_VALUES(std::string(error.what()), path_ + " folder");
    }
  }
}

TEST_F(FileRendezvous, AFolderThatIsNotThereIsSaid) {
  GroupOptions o = options(0, 2);
  o.init_method = "file://" + path_ + "/no/such/folder";
  EXPECT_THROW(backends::join_store(o), backends::ConfigurationError);
}

}  // namespace
