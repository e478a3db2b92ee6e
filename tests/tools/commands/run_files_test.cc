// The files of a run's folder as users find them after going back, after damage, and beside the
// outputs of other commands: no model is lost or named wrongly without a line.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "io/checkpoint/checkpoint.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/free_port.h"
#include "tests/support/running_program.h"
#include "tests/support/test_support.h"
#include "tests/tools/commands/program.h"

namespace {

using program::quick_train;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine;
using test_support::expect_success;
using test_support::read_text;
using test_support::write_text;
namespace fs = std::filesystem;

class RunFiles : public testing::Test {
 protected:
  std::string dir() const { return folder_ / "run"; }
  std::string snapshot(std::int64_t step) const {
    return dir() + "/" + io::checkpoint_file_name(step);
  }
  // 5 steps an epoch, with a snapshot after each.
  template <class... More>
  CommandResult train(const More&... more) const {
    return engine(
        quick_train(argv("--epochs 4 --save-every 1e --keep-last 0 --save-dir", dir(), more...)));
  }
  template <class... More>
  CommandResult resume(const std::string& from, const More&... more) const {
    return call("train --threads 1 --resume", from, more...);
  }
  std::string best() const { return read_text(dir() + "/best"); }

  test_support::TemporaryDirectory folder_;
};

// Returns a socket that listens there, or -1.
int listen_on(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      listen(fd, 1) == 0)
    return fd;
  close(fd);
  return -1;
}

// A job restarts before its run has begun, and again afterwards.
class Restarted : public RunFiles {
 protected:
  void SetUp() override { expect_success(train()); }
  CommandResult start(const std::vector<std::string>& more,
                      const std::string& launch = "b2") const {
    return engine(quick_train(test_support::overridden(argv("--save-dir", dir()), more)),
                  {{"ENGINE_RESTART_COUNT", "1"}, {"ENGINE_LAUNCH_ID", launch}});
  }
};

TEST_F(Restarted, OverwriteMovesTheOlderRunAsideOnce) {
  const auto overwrite = argv("--overwrite --resume none --epochs 2");
  EXPECT_CONTAINS(expect_success(start(overwrite)).err, "to " + dir() + ".old-1\n");
  EXPECT_EQ(io::load_description(snapshot(10)).global_step, 10);
  EXPECT_CONTAINS(expect_success(start(overwrite)).out, "epoch 2 of 2 is done");
  EXPECT_FALSE(fs::exists(dir() + ".old-2"));
  EXPECT_CONTAINS(expect_success(start(overwrite, "c3")).err, "to " + dir() + ".old-2\n");
}

TEST_F(Restarted, ANamedSnapshotIsGoneBackToOnce) {
  const auto back = argv("--epochs 4 --resume", snapshot(5));
  const CommandResult first = expect_success(start(back));
  EXPECT_CONTAINS(first.err, "3 snapshots newer than step 5 moved to " + dir() + "/given-up-1\n");
  EXPECT_CONTAINS(first.out, "resumed " + snapshot(5));
  EXPECT_CONTAINS(expect_success(start(back)).out, "epoch 4 of 4 is done");
  EXPECT_FALSE(fs::exists(dir() + "/given-up-2"));
}

TEST_F(Restarted, AnotherRunIsNotContinuedUnasked) {
  const CommandResult refused = start(argv("--resume none"));
  EXPECT_EQ(refused.exit_code, 73);
  EXPECT_CONTAINS(refused.err, dir() + " holds a run (");
}

// The port of --prometheus is in use until the launcher has restarted the rank.
TEST_F(Restarted, ALauncherStartsWhatWasAskedForAfterAFailedFirstAttempt) {
  const int port = test_support::free_port();
  const int held = listen_on(port);
  ASSERT_GE(held, 0);
  test_support::Running job(argv(test_support::engine_binary(), "launch --max-restarts 100000 --",
                                 quick_train(argv("--epochs 2 --overwrite --save-dir", dir(),
                                                  "--prometheus", std::to_string(port)))));
  EXPECT_TRUE(job.writes_err("restart 1 of 100000 after: ")) << job.err();
  close(held);
  EXPECT_EQ(job.wait(), 0) << job.err().substr(0, 2000);
  EXPECT_TRUE(fs::exists(dir() + ".old-1/step-00000020.ckpt"));
  EXPECT_FALSE(fs::exists(dir() + ".old-2"));
  EXPECT_EQ(io::load_description(snapshot(10)).global_step, 10);
}

}  // namespace
