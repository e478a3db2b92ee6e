// Acceptor files in the user's folder: which are removed, and whose folder it is.
#include "backends/membership/acceptor_file.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "backends/secret.h"
#include "io/base/files/io_error.h"
#include "tests/support/expect_contains.h"

namespace {

using backends::AcceptorFile;
using backends::AcceptorId;
using backends::AcceptorState;
using backends::Ballot;
using backends::Roster;

std::string new_job() { return "acceptor test " + backends::to_hex(backends::random_bytes(8)); }

// As a process that was killed leaves it: a job whose members are on the hosts of these acceptors.
std::string left_behind(const std::string& job, const std::function<AcceptorId(AcceptorId)>& host) {
  AcceptorFile file(job);
  auto roster = std::make_shared<Roster>();
  roster->generation = 1;
  roster->nonce = backends::random_bytes(16);
  roster->members.resize(2);
  for (std::uint64_t m = 0; m < 2; ++m) roster->members[m].id = {1, m + 1};
  roster->members[0].acceptor = file.id();
  roster->members[1].acceptor = host(file.id());
  EXPECT_TRUE(file.update([&](AcceptorState& state) { state.learn(roster); }));
  return file.path();
}

AcceptorId same_host(AcceptorId own) { return own; }
AcceptorId another_host(AcceptorId) { return {1, 2}; }

TEST(AcceptorFile, WhatADeadJobOfThisHostHasLeftIsRemovedByTheNext) {
  const std::string left = left_behind(new_job(), same_host);
  const AcceptorFile next(new_job());
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST(AcceptorFile, WhatMembersOnOtherHostsMayNeedStays) {
  const std::string left = left_behind(new_job(), another_host);
  const AcceptorFile next(new_job());
  EXPECT_TRUE(std::filesystem::exists(left));
  std::filesystem::remove(left);
}

// As of a process that is rejected before it joins.
TEST(AcceptorFile, OneThatNobodyWasToldOfIsRemoved) {
  const std::string job = new_job();
  auto first = std::make_unique<AcceptorFile>(job);
  const std::string path = first->path();
  {
    const AcceptorFile second(job);
    first.reset();
    EXPECT_TRUE(std::filesystem::exists(path)) << "another process has it";
  }
  std::filesystem::remove(path);
  { const AcceptorFile unused(job); }
  EXPECT_FALSE(std::filesystem::exists(path));
  AcceptorFile used(job);
  used.use_as({1, 2});
  EXPECT_TRUE(std::filesystem::exists(path));
  used.remove_if_last();
}

TEST(AcceptorFile, TheParentOfDeadRanksRemovesWhatTheyLeft) {
  const std::string left = left_behind(new_job(), same_host),
                    needed = left_behind(new_job(), another_host);
  AcceptorFile living(new_job());
  AcceptorFile::remove_unused();
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(needed));
  EXPECT_TRUE(std::filesystem::exists(living.path()));
  std::filesystem::remove(needed);
  living.remove_if_last();
}

TEST(AcceptorFile, ThatOfALivingJobStays) {
  // Another process: a lock is its process's.
  int ready_pipe[2], ended[2];
  ASSERT_EQ(pipe(ready_pipe), 0);
  ASSERT_EQ(pipe(ended), 0);
  const std::string job = new_job();
  const pid_t child = fork();
  if (child == 0) {
    close(ended[1]);
    const AcceptorFile mine(job);
    left_behind(job, same_host);
    char end = 0;
    const bool ok = write(ready_pipe[1], "x", 1) == 1 && read(ended[0], &end, 1) == 0;
    _exit(ok ? 0 : 1);
  }
  close(ended[0]);
  char ready = 0;
  ASSERT_EQ(read(ready_pipe[0], &ready, 1), 1);
  {
    const AcceptorFile next(new_job());
    AcceptorFile same(job);
    std::uint64_t generation = 0;
    EXPECT_TRUE(
        same.update([&](AcceptorState& state) { generation = generation_of(state.decided); }));
    EXPECT_EQ(generation, 1u);
  }
  close(ended[1]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(ready_pipe[0]);
  close(ready_pipe[1]);
}

// The file as it is laid out: two copies, of which the second is written first.
constexpr std::streamoff kCopyAt[] = {4096, 4096 + (32 << 20)};

class TornAcceptorFile : public testing::Test {
 protected:
  ~TornAcceptorFile() override { std::filesystem::remove(path_); }

  // Its promises are of rounds 1, 2, ..., `count`.
  void promise(std::uint64_t count) {
    AcceptorFile file(job_);
    for (std::uint64_t round = 1; round <= count; ++round)
      ASSERT_TRUE(file.update([&](AcceptorState& state) {
        state.promised = Ballot{round, {1, 1}};
      }));
  }
  std::string copy(std::size_t which) const {
    std::string bytes(kCopyBytes, '\0');
    std::ifstream(path_).seekg(kCopyAt[which]).read(bytes.data(), std::streamsize{kCopyBytes});
    return bytes;
  }
  void write_copy(std::size_t which, const std::string& bytes) const {
    std::fstream(path_, std::ios::in | std::ios::out).seekp(kCopyAt[which]) << bytes;
  }
  // What a process reads that has just been started.
  std::uint64_t round() const {
    AcceptorFile file(job_);
    std::uint64_t round = 0;
    EXPECT_TRUE(file.update([&](AcceptorState& state) { round = state.promised.round; }));
    return round;
  }

  static constexpr std::size_t kCopyBytes = 200;  // no copy of these tests is longer
  const std::string job_ = new_job();
  const AcceptorFile present_{job_};  // or tests beside this one would remove the dead job's file
  const std::string path_ = present_.path();
};

TEST_F(TornAcceptorFile, AWriteThatIsCutOffAnywhereLeavesTheStateBefore) {
  promise(1);
  const std::string before = copy(1);
  promise(3);
  const std::string whole = copy(1);
  for (std::size_t cut = 0; cut <= kCopyBytes; ++cut) {
    const std::string torn = whole.substr(0, cut) + before.substr(cut);
    write_copy(1, torn);
    EXPECT_EQ(round(), torn == whole ? 3u : 2u) << "cut off behind " << cut << " bytes";
  }
}

TEST_F(TornAcceptorFile, WhereTheNewerCopyIsGoneTheOlderOneIsRead) {
  promise(3);
  std::filesystem::resize_file(path_, static_cast<std::uintmax_t>(kCopyAt[1]));
  EXPECT_EQ(round(), 2u);
}

TEST_F(TornAcceptorFile, ADeathInTheFirstWriteLeavesNothing) {
  promise(1);
  write_copy(1, copy(1).substr(0, 40) + std::string(kCopyBytes - 40, '\0'));
  EXPECT_EQ(round(), 0u);
}

// It must not vote as if it had never promised anything.
TEST_F(TornAcceptorFile, WhereNoCopyIsWholeItIsDamaged) {
  promise(3);
  for (const std::size_t which : {0, 1}) {
    std::string bytes = copy(which);
    bytes[50] ^= 1;
    write_copy(which, bytes);
  }
  AcceptorFile file(job_);
  EXPECT_FALSE(file.update([](AcceptorState&) {}));
  EXPECT_NE(file.problem().text.find("is damaged"), std::string::npos) << file.problem().text;
}

// Not at the first vote, which nobody could count then.
TEST(AcceptorFile, ALimitOnTheSizeOfFilesIsSaidWhenItIsMade) {
  constexpr int kRefused = 11;
  const std::string job = new_job();
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{8192, 8192};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    try {
      const AcceptorFile file(job);
    } catch (const io::CannotCreateError& error) {
      const std::string text = error.what();
      _exit(test_support::has_values(text, "too large limit 8 KiB -f") ? kRefused : 2);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), kRefused);
  AcceptorFile(job).remove_if_last();
}

TEST(AcceptorFile, AnotherUsersFolderIsPassedByAndNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make a folder of another user";
  constexpr int kNoNamespaces = 77;
  const pid_t child = fork();
  if (child == 0) {  // with a /dev/shm of its own
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", "/dev/shm", "tmpfs", 0, nullptr) != 0)
      _exit(kNoNamespaces);
    if (mkdir("/dev/shm/engine-0", 0700) != 0 || chown("/dev/shm/engine-0", 1234, 1234) != 0)
      _exit(1);
    const AcceptorFile file("a job");
    if (!file.path().starts_with("/dev/shm/engine-0-1/elastic-")) _exit(2);
    if (file.notice().find("/dev/shm/engine-0 belongs to user 1234") != 0) _exit(3);
    if (AcceptorFile("a job").path() != file.path()) _exit(4);  // all find the same one
    // All names are taken: the home folder.
    std::filesystem::remove_all("/dev/shm/engine-0-1");
    for (int i = 1; i < 16; ++i) {
      const std::string name = "/dev/shm/engine-0-" + std::to_string(i);
      if (mkdir(name.c_str(), 0700) != 0 || chown(name.c_str(), 1234, 1234) != 0) _exit(6);
    }
    setenv("XDG_CONFIG_HOME", "/dev/shm/home", 1);
    const AcceptorFile at_home("a job");
    if (!at_home.path().starts_with("/dev/shm/home/engine/registers-")) _exit(7);
    if (!test_support::has_values(at_home.notice(), "/dev/shm/engine-0 to /dev/shm/engine-0-15"))
      _exit(8);
    _exit(AcceptorFile("a job").path() == at_home.path() ? 0 : 9);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoNamespaces)
    GTEST_SKIP() << "needs mount namespaces";
  EXPECT_EQ(status, 0);
}

}  // namespace
