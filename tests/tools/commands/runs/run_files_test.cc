// The files of a run's folder as users find them after going back, after damage, and beside the
// outputs of other commands: no model is lost or named wrongly without a line.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "engine/train/best_model.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_names.h"
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
  std::string checkpoint(std::int64_t step) const {
    return dir() + "/" + io::checkpoint_file_name(step);
  }
  // 5 steps an epoch, with a checkpoint after each.
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

// A run whose losses fall, so that each evaluation is the best so far.
class RunThatImproves : public RunFiles {
 protected:
  void SetUp() override {
    expect_success(train("--keep-best loss --lr 0.01 --momentum 0"));
    const auto first = engine::best_step_of(io::load_description(checkpoint(5)));
    ASSERT_EQ(first, 5);
    ASSERT_NE(best(), "step-00000005.ckpt\n");
  }
};

TEST_F(RunThatImproves, BestIsTheCheckpointsAfterGoingBack) {
  const CommandResult back = resume(checkpoint(5), "--lr 1 --keep-last 1");
  expect_success(back);
  EXPECT_CONTAINS(back.err, dir() + ": `best` names step-00000005.ckpt again\n");
  const std::string mark = "Best so far: loss ";
  const std::size_t reported = back.out.rfind(mark);
  ASSERT_NE(reported, std::string::npos) << back.out;
  const std::size_t at = back.out.find(" at step ", reported) + 9;
  const std::int64_t step = std::stoll(back.out.substr(at));
  EXPECT_EQ(best(), io::checkpoint_file_name(step) + "\n");
  EXPECT_TRUE(fs::exists(checkpoint(step)));
  EXPECT_CONTAINS(call("export", dir(), "-o", folder_ / "a.npz").err,
                  "its best checkpoint, " + io::checkpoint_file_name(step));
}

TEST_F(RunThatImproves, WithoutEvaluationsToo) {
  expect_success(resume(checkpoint(5), "--eval-every 0 --keep-best none --keep-last 1"));
  EXPECT_EQ(best(), "step-00000005.ckpt\n");
  EXPECT_TRUE(fs::exists(checkpoint(5)));
  expect_success(call("eval --threads 1", dir()));
}

// The names are those of existing files however early the resumed run ends.
TEST_F(RunThatImproves, NamesAreGoodIfTheResumedRunDiverges) {
  EXPECT_EQ(resume(checkpoint(10), "--lr 1e6").exit_code, 79);
  EXPECT_EQ(read_text(dir() + "/latest"), "step-00000010.ckpt\n");
  EXPECT_TRUE(fs::exists(dir() + "/" + best().substr(0, best().size() - 1))) << best();
  expect_success(call("eval --threads 1", dir()));
}

TEST_F(RunThatImproves, BestIsRemovedIfItsCheckpointIsGone) {
  fs::remove(checkpoint(5));
  io::Checkpoint without = io::load_checkpoint(checkpoint(10));
  for (auto& [name, value] : without.counters)
    if (name == "best.step") value = 5;
  io::save_checkpoint(without, checkpoint(10));
  const CommandResult back = resume(checkpoint(10), "--eval-every 0 --keep-best none");
  expect_success(back);
  EXPECT_VALUES(back.err, "`best` removed: step-00000005.ckpt,");
  EXPECT_FALSE(fs::exists(dir() + "/best"));
  expect_success(call("eval --threads 1", dir()));
}

TEST_F(RunFiles, AMissingNewestCheckpointIsTold) {
  expect_success(train());
  fs::rename(checkpoint(20), folder_ / "elsewhere.ckpt");
  const CommandResult more = expect_success(resume(dir(), "--epochs 5"));
  EXPECT_VALUES(more.err, checkpoint(20) + " `latest` step-00000015.ckpt");
  for (const int step : {5, 10, 15, 20, 25}) fs::remove(checkpoint(step));
  const CommandResult all = expect_success(resume(dir(), "--epochs 5"));
  EXPECT_VALUES(all.err, dir() + " `latest` step-00000025.ckpt");
}

TEST_F(RunFiles, ACheckpointOfALaterVersionEndsTheStart) {
  expect_success(train());
  std::string bytes = read_text(checkpoint(20));
  bytes[8] = 99;
  write_text(checkpoint(20), bytes);
  for (const CommandResult& result :
       {resume(dir()), train("--resume auto"), resume(dir(), "--epochs 5")})
    program::expect_error(result, 65, checkpoint(20) + " version 99");
  EXPECT_EQ(read_text(checkpoint(20)), bytes);
  const CommandResult back = expect_success(resume(checkpoint(15)));
  EXPECT_EQ(read_text(dir() + "/given-up-1/step-00000020.ckpt"), bytes);
}

bool can_become_another_user() {
  return geteuid() == 0 &&
         test_support::run_command({"setpriv", "--reuid", "65534", "--clear-groups", "true"})
                 .exit_code == 0;
}

TEST_F(RunFiles, ACheckpointThatCannotBeOpenedEndsTheStart) {
  if (!can_become_another_user()) GTEST_SKIP() << "cannot become another user";
  expect_success(train());
  fs::permissions(checkpoint(20), fs::perms::owner_read | fs::perms::owner_write);
  fs::permissions(folder_.path(), fs::perms::all);
  for (const auto& entry : fs::recursive_directory_iterator(dir()))
    if (entry.path() != checkpoint(20)) fs::permissions(entry.path(), fs::perms::all);
  fs::permissions(dir(), fs::perms::all);
  const std::string bytes = read_text(checkpoint(20));
  const CommandResult result = test_support::run_command(
      argv("setpriv --reuid 65534 --clear-groups", test_support::engine_binary(),
           "train --threads 1 --epochs 5 --resume", dir()));
  program::expect_error(
      result, 65,
      "cannot open " + checkpoint(20) + ": Permission denied; not go back to " + checkpoint(15));
  EXPECT_EQ(read_text(checkpoint(20)), bytes);
}

TEST_F(RunFiles, WhatACheckpointWouldReplaceIsKept) {
  expect_success(train());
  const std::string damaged = read_text(checkpoint(20)).substr(0, 999);
  write_text(checkpoint(20), damaged);
  const CommandResult more = expect_success(resume(dir()));
  EXPECT_CONTAINS(more.err, "kept as step-00000020.ckpt.kept-1\n");
  EXPECT_EQ(read_text(checkpoint(20) + ".kept-1"), damaged);
  EXPECT_NO_THROW(io::check_checkpoint(checkpoint(20)));

  const std::string other = folder_ / "other";
  expect_success(engine(quick_train(argv("--epochs 5 --save-dir", other))));
  const std::string others = read_text(other + "/step-00000025.ckpt");
  write_text(checkpoint(25), others);
  const CommandResult beside = expect_success(resume(dir(), "--epochs 5"));
  EXPECT_CONTAINS(beside.err, checkpoint(25) + ": written by another run, ");
  EXPECT_CONTAINS(beside.err, "kept as step-00000025.ckpt.kept-1\n");
  EXPECT_EQ(read_text(checkpoint(25) + ".kept-1"), others);
}

// The files that a running job's user has deleted, perhaps by mistake.
TEST_F(RunFiles, DeletedFilesAreMadeAgainAtTheNextSave) {
  test_support::Running job(argv(
      test_support::engine_binary(),
      quick_train(argv("--steps 100000000 --save-every 50s --log-every 10 --save-dir", dir()))));
  ASSERT_TRUE(test_support::eventually([&] { return fs::exists(dir() + "/latest"); }));
  const std::vector<std::string> names{"run.json", "log.txt", "metrics.jsonl"};
  for (const std::string& name : names) fs::remove(dir() + "/" + name);
  for (const std::string& name : names)
    EXPECT_TRUE(test_support::eventually([&] { return fs::exists(dir() + "/" + name); })) << name;
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 143) << job.err();
  EXPECT_CONTAINS(job.err(), dir() + "/run.json: was deleted; made again\n");
  for (const std::string name : {"log.txt", "metrics.jsonl"})
    EXPECT_VALUES(job.err(), dir() + "/" + name + ": was deleted; made again, lines");
  EXPECT_CONTAINS(read_text(dir() + "/log.txt"), "saved " + dir());
  EXPECT_CONTAINS(read_text(dir() + "/metrics.jsonl"), "\"event\":\"end\"");
  expect_success(resume(dir(), "--steps 10"));
}

TEST_F(RunFiles, CheckFindsTheDamageOfANewerCheckpoint) {
  expect_success(train());
  expect_success(call("inspect --check", dir()));
  write_text(checkpoint(20), read_text(checkpoint(20)).substr(0, 999));
  const CommandResult checked = call("inspect --check", dir());
  EXPECT_EQ(checked.exit_code, 65);
  EXPECT_CONTAINS(checked.out, checkpoint(15) + ": intact, ");
  EXPECT_CONTAINS(checked.err, "engine: error: " + checkpoint(20) + ": truncated");
  EXPECT_VALUES(checked.err, "newest intact step-00000015.ckpt");
}

// Descriptor 3 is free for libraries, one after the other.
TEST_F(RunFiles, TooFewDescriptorsAreALimitOfTheProcess) {
  expect_success(train());
  for (const char* command : {"eval", "train --resume"}) {
    const std::string line = "exec 3>&-; ulimit -n 4; exec " + test_support::engine_binary() + " " +
                             command + " " + dir();
    const CommandResult limited = test_support::run_command({"sh", "-c", line});
    program::expect_error(limited, 69, "open files 4");
  }
}

TEST_F(RunFiles, AFolderThatCannotBeMadeIsNamed) {
  if (!can_become_another_user()) GTEST_SKIP() << "cannot become another user";
  std::vector<std::string> command =
      argv("setpriv --reuid 65534 --clear-groups env -C /", test_support::engine_binary());
  for (const std::string& word : quick_train(argv("--save-dir auto"))) command.push_back(word);
  program::expect_error(test_support::run_command(command), 73,
                        "cannot create folder runs: Permission denied; give --save-dir DIR");
}

// Options of the former data set have no effect with the one that is allowed.
TEST_F(RunFiles, AnOptionThatAnAllowedChangeDropsNeedsNoPermission) {
  expect_success(train());
  write_text(folder_ / "a.csv", "x,label\n1,a\n2,b\n3,a\n4,b\n5,a\n6,b\n");
  const auto to_table = argv("--allow-change dataset --dataset csv --annotations",
                             std::string(folder_ / "a.csv"), "--batch-size 2");
  const CommandResult other = resume(dir(), to_table);
  EXPECT_LACKS(other.err, "--synthetic-s");
  const CommandResult refused = resume(dir(), "--dataset csv --annotations", folder_ / "a.csv");
  program::expect_error(refused, 78, "was trained with --dataset synthetic, asked for is csv");
}

// Every option of every command that names a file to be written.
TEST_F(RunFiles, NoCommandReplacesFilesOfARun) {
  expect_success(train());
  fs::copy(dir(), folder_ / "other", fs::copy_options::recursive);
  const std::string other = folder_ / "other";
  const std::vector<std::vector<std::string>> commands{
      argv("eval --threads 1", dir(), "--confusion"),
      argv("export", dir(), "--format npz -o"),
      argv("report --no-predictions", dir(), "-o"),
      argv("import", checkpoint(5), "-o"),
      argv("bench comm --backend single --plot"),
      quick_train({"--metrics"}),
      quick_train({"--log-file"})};
  const auto expect_refused = [&](std::vector<std::string> command, const std::string& name) {
    const std::string path = other + "/" + name, bytes = read_text(path);
    command.push_back(path);
    const CommandResult result = engine(command);
    EXPECT_EQ(result.exit_code, 73) << command[0] << " " << path << ": " << result.err;
    EXPECT_VALUES(result.err, "file " + other);
    EXPECT_EQ(read_text(path), bytes) << command[0];
  };
  for (const char* name :
       {"run.json", "best", "latest", "step-00000020.ckpt", "metrics.jsonl", "log.txt"})
    for (const std::vector<std::string>& command : commands) expect_refused(command, name);
  expect_refused(quick_train({"--trace"}), "run.json");
  fs::remove(other + "/run.json");  // the run can continue without it
  expect_refused(commands[0], "step-00000020.ckpt");
}

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
  EXPECT_EQ(io::load_description(checkpoint(10)).global_step, 10);
  EXPECT_CONTAINS(expect_success(start(overwrite)).out, "epoch 2 of 2 is done");
  EXPECT_FALSE(fs::exists(dir() + ".old-2"));
  EXPECT_CONTAINS(expect_success(start(overwrite, "c3")).err, "to " + dir() + ".old-2\n");
}

TEST_F(Restarted, ANamedCheckpointIsGoneBackToOnce) {
  const auto back = argv("--epochs 4 --resume", checkpoint(5));
  const CommandResult first = expect_success(start(back));
  EXPECT_VALUES(first.err, "3 checkpoints step 5 " + dir() + "/given-up-1");
  EXPECT_CONTAINS(first.out, "resumed " + checkpoint(5));
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
  EXPECT_EQ(io::load_description(checkpoint(10)).global_step, 10);
}

TEST_F(RunFiles, ARunMayNameItsOwnMetrics) {
  expect_success(train("--metrics", dir() + "/metrics.jsonl"));
  EXPECT_CONTAINS(read_text(dir() + "/metrics.jsonl"), "\"event\":\"start\"");
}

}  // namespace
