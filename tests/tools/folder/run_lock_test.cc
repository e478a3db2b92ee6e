// Who may lock a run's folder: processes of other users, which have no job there, and jobs that
// start at the same time.
#include "tools/folder/run_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/identity/host_identity.h"
#include "io/base/files/io_error.h"
#include "io/base/machine/process_state.h"
#include "io/checkpoint/atomic_file.h"
#include "io/checkpoint/checkpoint.h"
#include "io/metrics/line_file.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tools/folder/lock_file.h"
#include "tools/folder/run_folder.h"
#include "tools/report/output/run_log.h"

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using tools::RunLock;

constexpr uid_t kAnotherUser = 65534;

// A process that acts, says so, and stays until the end of this.
class Process {
 public:
  explicit Process(const std::function<char()>& act) {
    EXPECT_EQ(pipe2(said_, O_CLOEXEC), 0);
    pid_ = fork();
    EXPECT_GE(pid_, 0);
    if (pid_ == 0) {
      const char result = act();
      static_cast<void>(!write(said_[1], &result, 1));
      for (;;) pause();  // until it is killed
    }
    close(said_[1]);
  }
  ~Process() {
    end();
    close(said_[0]);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // What it said.
  char said() const {
    char byte = 0;
    return read(said_[0], &byte, 1) == 1 ? byte : '?';
  }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int said_[2];
};

// Becomes another user, if that is allowed.
bool become_another_user() {
  return geteuid() == 0 && setresgid(kAnotherUser, kAnotherUser, kAnotherUser) == 0 &&
         setresuid(kAnotherUser, kAnotherUser, kAnotherUser) == 0;
}

// A process id that no process has.
pid_t gone_process() {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  waitpid(pid, nullptr, 0);
  return pid;
}

class Lock : public testing::Test {
 protected:
  void SetUp() override {
    fs::permissions(folder_.path(), fs::perms(0755));
    umask_ = umask(022);
  }
  void TearDown() override { umask(umask_); }

  std::string dir() const { return folder_.path().string(); }
  std::string path() const { return folder_ / "run.lock"; }
  unsigned mode() const { return static_cast<unsigned>(fs::status(path()).permissions()); }

  std::string refusal(milliseconds stale = std::chrono::minutes(2)) {
    try {
      const RunLock lock(dir(), {.stale = stale});
      return "";
    } catch (const io::CannotCreateError& error) {
      return error.what();
    }
  }

  // The process of another user that locks the file as its owner lets it, for reading.
  std::unique_ptr<Process> another_user_locks(int how) {
    auto process = std::make_unique<Process>([&] {
      become_another_user();
      const int fd = open(path().c_str(), O_RDONLY | O_CLOEXEC);
      return fd < 0 ? 'n' : flock(fd, how | LOCK_NB) == 0 ? 'y' : 'b';
    });
    return process;
  }

  test_support::TemporaryDirectory folder_;
  mode_t umask_ = 0;
};

// A colleague of the same group goes on with a run as far as the umask lets them; who may only read
// could hold jobs off by a lock.
TEST_F(Lock, WhoMayNotWriteItMayNotReadIt) {
  for (const auto& [mask, expected] :
       {std::pair{022u, 0600u}, {002u, 0660u}, {077u, 0600u}, {027u, 0600u}, {0u, 0666u}}) {
    umask(mask);
    RunLock lock(dir());
    EXPECT_EQ(mode(), expected) << std::oct << mask;
    fs::remove(path());
    lock.look();  // made again
    EXPECT_EQ(mode(), expected) << std::oct << mask;
    fs::remove(path());
  }
  test_support::write_text(path(), "");  // an earlier version's
  fs::permissions(path(), fs::perms(0644));
  const RunLock lock(dir());
  EXPECT_EQ(mode(), 0600u);
}

TEST_F(Lock, AnotherUserCannotOpenIt) {
  if (geteuid() != 0) GTEST_SKIP() << "may not become another user";
  const RunLock lock(dir());
  EXPECT_EQ(another_user_locks(LOCK_SH)->said(), 'n');
}

// The file of an earlier version, mode 0644, which was opened then.
TEST_F(Lock, OfAProcessThatItDoesNotNameIsReplaced) {
  const std::string gone = backends::host_name() + " " + std::to_string(gone_process()) + "\n";
  for (const int how : {LOCK_SH, LOCK_EX}) {
    for (const std::string& text : {std::string(), gone}) {
      test_support::write_text(path(), text);
      fs::permissions(path(), fs::perms(0644));
      const auto other = another_user_locks(how);
      ASSERT_EQ(other->said(), 'y');
      testing::internal::CaptureStderr();
      {
        const RunLock lock(dir(), {.stale = std::chrono::seconds(2)});
        const std::string said = testing::internal::GetCapturedStderr();
        EXPECT_VALUES(said, path() + " replaced");
        EXPECT_EQ(mode(), 0600u);
        EXPECT_FALSE(fs::exists(path() + ".new"));
        const Process second([&] {
          return test_support::has_values(
                     refusal(), "running in " + dir() + ": process " + std::to_string(getppid()))
                     ? 'y'
                     : 'n';
        });
        EXPECT_EQ(second.said(), 'y');
      }
      fs::remove(path());
    }
  }
}

// A process that is stopped and continued may be in the middle of a write.
TEST_F(Lock, AProcessThatHasLostItWritesNothingMore) {
  std::optional<tools::RunFolder> run(std::in_place, tools::RunFolderRequest{.folder = dir()});
  tools::keep_log(folder_ / "log.txt");
  io::LineFile log("log", folder_ / "log.txt", io::NamedBy::kRun);
  io::Checkpoint checkpoint;
  checkpoint.model = "m";
  checkpoint.global_step = 1;
  const auto save = [&] { io::save_to_directory(checkpoint, dir(), 0, /*best=*/true); };
  save();
  io::replace_file(folder_ / "status.json", "of this process");
  EXPECT_EQ(log.write("before\n"), "");
  const Process other([&] {
    static const RunLock lock(dir(), {.take_over = true});
    return 'y';
  });
  ASSERT_EQ(other.said(), 'y');
  checkpoint.global_step = 2;
  EXPECT_THROW(save(), io::CannotCreateError);
  EXPECT_THROW(io::replace_file(folder_ / "status.json", "no longer"), io::CannotCreateError);
  EXPECT_NE(log.write("after\n").find("taken the folder"), std::string::npos);
  for (const char* name : {"latest", "best"})
    EXPECT_EQ(test_support::read_text(folder_ / name), "step-00000001.ckpt\n");
  EXPECT_FALSE(fs::exists(folder_ / "step-00000002.ckpt"));
  EXPECT_EQ(test_support::read_text(folder_ / "status.json"), "of this process");
  run.reset();
  testing::internal::CaptureStderr();
  tools::warn("the job ends");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "engine: the job ends\n");
  EXPECT_EQ(test_support::read_text(folder_ / "log.txt"), "before\n");
}

// The other process has ended meanwhile, and its lock has no holder.
TEST_F(Lock, StaysLostAfterTheProcessThatTookItHasEnded) {
  RunLock lock(dir());
  const Process other([&] {
    { const RunLock taken(dir(), {.take_over = true}); }
    return 'y';
  });
  ASSERT_EQ(other.said(), 'y');
  lock.look();
  try {
    lock.check();
    ADD_FAILURE() << "it has the folder";
  } catch (const io::CannotCreateError& error) {
    EXPECT_NE(std::string(error.what()).find("has taken the folder"), std::string::npos)
        << error.what();
  }
}

TEST_F(Lock, TheMessageNamesAStoppedHolderAndWhatToDo) {
  const Process other([&] {
    static const RunLock lock(dir());
    return 'y';
  });
  ASSERT_EQ(other.said(), 'y');
  kill(other.pid(), SIGSTOP);
  ASSERT_TRUE(test_support::eventually([&] { return base::is_stopped(other.pid()); }));
  const std::string pid = std::to_string(other.pid());
  EXPECT_VALUES(refusal(), dir() + " process " + pid + " " + backends::host_name() +
                               " SIGSTOP `kill -CONT " + pid + "` `kill -KILL " + pid +
                               "` --save-dir");
}

// It may be a job in a container, whose processes this host's do not see, or one that could not
// write its name to a full disk: each touches the file.
TEST_F(Lock, OfAJobThatLivesIsNotReplaced) {
  const std::string gone = backends::host_name() + " " + std::to_string(gone_process()) + "\n";
  for (const std::string& text : {std::string(), gone}) {
    test_support::write_text(path(), text);
    int go[2];
    ASSERT_EQ(pipe(go), 0);
    const Process job([&] {
      const int fd = open(path().c_str(), O_RDWR | O_CLOEXEC);
      if (flock(fd, LOCK_EX | LOCK_NB) != 0) return 'n';
      static_cast<void>(!write(go[1], "y", 1));
      for (;;) {
        usleep(300'000);
        futimens(fd, nullptr);
      }
    });
    char byte = 0;
    ASSERT_EQ(read(go[0], &byte, 1), 1);
    struct stat before {};
    ASSERT_EQ(stat(path().c_str(), &before), 0);
    const std::string said = refusal();
    EXPECT_VALUES(said, "running in " + dir() + " just");
    struct stat after {};
    ASSERT_EQ(stat(path().c_str(), &after), 0);
    EXPECT_EQ(before.st_ino, after.st_ino);
    close(go[0]);
    close(go[1]);
    fs::remove(path());
  }
}

// The wait is reported only if it lasts: the other job may be ending.
TEST_F(Lock, OfAnotherHostIsWaitedForInSilenceAtFirst) {
  const auto wait = [&] {
    testing::internal::CaptureStderr();
    const RunLock lock(dir(), {.waits = true, .stale = std::chrono::seconds(4)});
    return testing::internal::GetCapturedStderr();
  };
  test_support::write_text(path(), "n7 4711\n");
  const int opened = inotify_init1(IN_CLOEXEC);
  ASSERT_GE(inotify_add_watch(opened, path().c_str(), IN_OPEN), 0);
  const Process job([&] {
    inotify_event event{};
    for (int times = 0; times < 3; ++times) {  // the other one waits: it opens the file again
      if (read(opened, &event, sizeof event) != sizeof event) return 'n';
    }
    return truncate(path().c_str(), 0) == 0 ? 'y' : 'n';
  });
  EXPECT_EQ(wait(), "");
  EXPECT_EQ(job.said(), 'y');
  close(opened);
  test_support::write_text(path(), "n7 4711\n");
  const std::string said = wait();
  EXPECT_NE(said.find("run.lock names process 4711 on n7: waiting "), std::string::npos) << said;
}

TEST_F(Lock, OfAJobThatIsStoppedIsNotReplaced) {
  const Process job([&] {
    static const RunLock lock(dir());
    return 'y';
  });
  ASSERT_EQ(job.said(), 'y');
  kill(job.pid(), SIGSTOP);
  EXPECT_NE(refusal(milliseconds(1)).find("process " + std::to_string(job.pid())),
            std::string::npos);
}

// A rank of the same job may take it. The job finds that out when it is continued.
TEST_F(Lock, OfAJobThatIsStoppedIsTakenByThoseWhoMay) {
  const tools::LockClaim claim{.from_stopped = true};
  const Process job([&] {
    static RunLock lock(dir());
    raise(SIGSTOP);
    lock.look();
    try {
      lock.check();
      return 'n';
    } catch (const io::CannotCreateError&) {
      return 'y';
    }
  });
  ASSERT_TRUE(test_support::eventually([&] { return base::is_stopped(job.pid()); }));
  const RunLock lock(dir(), claim);
  kill(job.pid(), SIGCONT);
  EXPECT_EQ(job.said(), 'y');
  const Process second([&] {
    try {
      const RunLock taken(dir(), claim);
      return 'n';
    } catch (const io::CannotCreateError&) {  // its holder runs
      return 'y';
    }
  });
  EXPECT_EQ(second.said(), 'y');
}

// A killed process gives back its memory before it closes its files.
TEST_F(Lock, OfAJobThatIsBeingKilledIsWaitedFor) {
  Process job([&] {
    static const std::vector<char> memory(256 << 20, 'x');
    static const RunLock lock(dir());
    return memory.back() == 'x' ? 'y' : 'n';
  });
  ASSERT_EQ(job.said(), 'y');
  kill(job.pid(), SIGKILL);
  const RunLock lock(dir(), {.waits = true});
}

// A job that has locked the file, and signs it just when another one wants to replace it.
TEST_F(Lock, ThatIsSignedMeanwhileIsGivenBack) {
  test_support::write_text(path(), "");
  const int held = open(path().c_str(), O_RDWR | O_CLOEXEC), other = open(path().c_str(), O_RDWR);
  ASSERT_EQ(flock(held, LOCK_EX | LOCK_NB), 0);
  const tools::LockSign seen = tools::lock_sign(other, path());
  tools::write_lock_sign(held, path());
  EXPECT_EQ(tools::replace_lock_file(path(), other, seen), -1);
  EXPECT_TRUE(tools::is_named(path(), held));
  EXPECT_FALSE(fs::exists(path() + ".new"));
  // Without a change it is replaced, once.
  const tools::LockSign signed_one = tools::lock_sign(other, path());
  const int made = tools::replace_lock_file(path(), other, signed_one);
  ASSERT_GE(made, 0);
  EXPECT_TRUE(tools::is_named(path(), made));
  EXPECT_EQ(tools::replace_lock_file(path(), other, signed_one), -1);
  EXPECT_TRUE(tools::is_named(path(), made));
  EXPECT_FALSE(fs::exists(path() + ".new"));
  for (const int fd : {held, other, made}) close(fd);
}

TEST_F(Lock, OfManyJobsThatReplaceItOneHasIt) {
  for (int round = 0; round < 5; ++round) {
    test_support::write_text(path(), "");
    fs::permissions(path(), fs::perms(0644));
    const auto other = another_user_locks(LOCK_SH);
    ASSERT_EQ(other->said(), 'y');
    std::vector<std::unique_ptr<Process>> jobs;
    for (int i = 0; i < 8; ++i)
      jobs.push_back(std::make_unique<Process>([&] {
        static std::unique_ptr<RunLock> lock;
        try {
          lock = std::make_unique<RunLock>(dir(), tools::LockClaim{.stale = milliseconds(200)});
          return 'y';
        } catch (const io::CannotCreateError&) {
          return 'n';
        }
      }));
    std::string all;
    for (const auto& job : jobs) all += job->said();
    EXPECT_EQ(std::count(all.begin(), all.end(), 'y'), 1) << all;
    EXPECT_EQ(std::count(all.begin(), all.end(), 'n'), 7) << all;
    EXPECT_FALSE(fs::exists(path() + ".new"));
    const std::string said = refusal();
    const auto holder = jobs[all.find('y')]->pid();
    EXPECT_NE(said.find("process " + std::to_string(holder)), std::string::npos) << said;
    jobs.clear();
    fs::remove(path());
  }
}

}  // namespace
