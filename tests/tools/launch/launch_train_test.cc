// `engine launch train`: trainings of several processes, on several nodes, over ssh, and past a
// failure.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/free_port.h"
#include "tests/tools/launch/launch_runner.h"

namespace {

using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine_binary;
using test_support::eventually;
using test_support::expect_success;
using test_support::free_port;
using test_support::last_line;
using test_support::launch;
using test_support::processes_with;
using test_support::run_command;
using test_support::Running;
using test_support::TemporaryDirectory;
namespace fs = std::filesystem;

using Words = std::vector<std::string>;

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A second of training on random data.
Words quick_train(const Words& more = {}) {
  return test_support::overridden(
      {"train", "--model", "mlp", "--dataset", "synthetic", "--synthetic-shape", "6x6x1",
       "--synthetic-size", "60", "--batch-size", "12", "--threads", "1", "--rdzv-timeout", "30"},
      more);
}
// Running statistics are those of all ranks: a checkpoint that a rank saves after the loss of
// another contains the lost rank's too.
Words glyph_train(const std::string& save_dir) {
  return argv(
      "train --model convnet --dataset glyphs --limit 6000 --epochs 1 --batch-size 32 --lr 0.05 "
      "--momentum 0.9 --sync-bn --threads 1 --resume auto --save-every 20s --keep-last 0 "
      "--eval-every 0 --save-dir",
      save_dir);
}

class LaunchTrain : public testing::Test {
 protected:
  const TemporaryDirectory folder_;
};

TEST_F(LaunchTrain, RanksMeetOnTheSocketOfTheLauncher) {
  const CommandResult r = expect_success(launch(Words{"--nproc-per-node", "3"} + quick_train()));
  EXPECT_CONTAINS(r.out, ":0: engine ");
  EXPECT_CONTAINS(r.out, "3 ranks x 1 thread");
  const CommandResult alone = expect_success(launch(quick_train()));
  EXPECT_CONTAINS(alone.out, "1 rank x 1 thread");
}

TEST_F(LaunchTrain, AWrappedProgramFindsThePortByItself) {
  const CommandResult r =
      expect_success(launch(argv("--nproc-per-node 2 -- bash -c", std::string("exec \"$@\""),
                                 "wrapper", engine_binary()) +
                            quick_train()));
  EXPECT_CONTAINS(r.out, "2 ranks x 1 thread");
}

TEST_F(LaunchTrain, AWrongListenerIsRefused) {
  for (const char* value : {"99", "1", "x", "-3"}) {
    const CommandResult r =
        run_command(Words{engine_binary()} + quick_train(),
                    {{"ENGINE_LISTEN_FD", value}, {"RANK", "0"}, {"WORLD_SIZE", "1"}});
    EXPECT_EQ(r.exit_code, 78) << r.err;
    EXPECT_CONTAINS(r.err, "ENGINE_LISTEN_FD=" + std::string(value));
  }
}

TEST_F(LaunchTrain, TheWorkersReasonIsTheLastLine) {
  const CommandResult r = launch(Words{"--nproc-per-node", "2", "--max-restarts", "3"} +
                                 quick_train(argv("--batch-size 1 --uneven drop")));
  EXPECT_EQ(r.exit_code, 78) << r.err;
  EXPECT_VALUES(last_line(r.err), "exit code 78; stderr: --uneven drop");
  EXPECT_LACKS(r.err, "restart 1");
}

TEST_F(LaunchTrain, RestartsGoOnFromTheCheckpoints) {
  const auto saving = [this](const char* steps) {
    return quick_train(argv("--save-dir", folder_ / "run", "--steps", steps));
  };
  const Words twice{"--max-restarts", "2"};
  const CommandResult first = expect_success(launch(twice + saving("5")));
  EXPECT_VALUES(first.err, "--max-restarts 2: " + (folder_ / "run") + " (--resume auto");
  EXPECT_CONTAINS(first.out, "fresh weights");
  const CommandResult second = launch(twice + saving("7"));
  EXPECT_CONTAINS(second.out, "at step 5");
  for (const Words& said : {Words{"--resume", "auto"}, Words{"--resume=auto"}}) {
    const CommandResult explicitly = expect_success(launch(twice + saving("8") + said));
    EXPECT_LACKS(explicitly.err, "--max-restarts");
  }
  const CommandResult unsaved = expect_success(launch(twice + quick_train()));
  EXPECT_VALUES(unsaved.err, "--save-dir, restart step 0");
  EXPECT_LACKS(launch(quick_train()).err, "restart");
}

// A job of another host may hold it, which rank 0 says; the others say that rank 0 waits for it.
TEST_F(LaunchTrain, RanksThatWaitForTheFolderSaySo) {
  const std::string run = folder_ / "run";
  fs::create_directory(run);
  test_support::write_text(run + "/run.lock", "elsewhere 4711\n");
  Running job(Words{engine_binary()} +
              quick_train(argv("--spawn 2 --save-dir", run, "--resume auto --stall-after 0.5")));
  EXPECT_TRUE(job.writes_err("rank 0 in no collective (taking the folder " + run + ")"))
      << job.err();
  EXPECT_CONTAINS(job.err(), "run.lock names process 4711 on elsewhere: waiting");
  kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait(), 143) << job.err();
}

TEST_F(LaunchTrain, TwoNodesByHand) {
  const std::string port = std::to_string(free_port()), secret = folder_ / "secret";
  test_support::write_text(secret, std::string(64, '5'));
  chmod(secret.c_str(), 0600);
  const auto node = [&](int rank, const Words& rendezvous) {
    return launch(
        Words{"--nnodes", "2", "--node-rank", std::to_string(rank), "--nproc-per-node", "2"} +
            rendezvous + quick_train(),
        {{"ENGINE_SECRET_FILE", secret}});
  };
  for (const Words& rendezvous :
       {Words{"--master-addr", "127.0.0.1", "--master-port", port},
        Words{"--rdzv-endpoint", "127.0.0.1:" + port},
        Words{"--rdzv-endpoint", "file://" + (folder_ / "meet"), "--rdzv-id", "j"}}) {
    CommandResult second;
    std::thread other([&] { second = node(1, rendezvous); });
    const CommandResult first = node(0, rendezvous);
    other.join();
    EXPECT_EQ(first.exit_code, 0) << first.err;
    EXPECT_EQ(second.exit_code, 0) << second.err;
    EXPECT_CONTAINS(first.out, "4 ranks x 1 thread");
  }
}

TEST_F(LaunchTrain, AnInterruptSavesAndASchedulersEchoDoesNotCutItOff) {
  Running job(
      Words{engine_binary(), "launch", "--nproc-per-node", "2"} +
      quick_train(
          argv("--epochs 1000000 --eval-every 0 --log-every 100 --synthetic-size 6000 --save-dir",
               folder_ / "run", "--save-every 0")));
  ASSERT_TRUE(job.writes_out("Step ["));
  // As a scheduler does it: every process of the job receives the signal, and the launcher passes
  // its own on.
  std::vector<pid_t> all = processes_with(folder_ / "run");
  ASSERT_GE(all.size(), 3u);
  for (const pid_t pid : all) kill(pid, SIGTERM);
  EXPECT_EQ(job.wait(), 143) << job.err();
  EXPECT_VALUES(job.out(), "Stopped signal 15 step");
  EXPECT_TRUE(fs::exists(folder_ / "run/latest"));
}

// The worker of `rank` among the processes with `mark`; 0 when there is none.
pid_t worker(const std::string& mark, int rank) {
  const std::string entry = std::string(1, '\0') + "RANK=" + std::to_string(rank) + '\0';
  for (const pid_t pid : processes_with(mark)) try {
      if (test_support::read_text("/proc/" + std::to_string(pid) + "/environ").find(entry) !=
          std::string::npos)
        return pid;
    } catch (const std::exception&) {  // it has just ended
    }
  return 0;
}

// Both folders end with the same checkpoint, to the last bit.
void expect_same_end(const std::string& a, const std::string& b) {
  const std::string last = test_support::read_text(a + "/latest");
  EXPECT_EQ(test_support::read_text(b + "/latest"), last);
  const std::string name = "/" + last.substr(0, last.find('\n'));
  const CommandResult verify = expect_success(call("verify --only all", a + name, b + name));
  EXPECT_EQ(verify.out, "");
}

TEST_F(LaunchTrain, ARankKilledOnceChangesNoBitOfTheResult) {
  const Words two{"--nproc-per-node", "2"};
  const CommandResult whole = expect_success(launch(two + glyph_train(folder_ / "whole")));
  Running job(Words{engine_binary(), "launch", "--max-restarts", "1"} + two +
              glyph_train(folder_ / "broken"));
  ASSERT_TRUE(eventually([&] { return fs::exists(folder_ / "broken/latest"); }));
  const pid_t victim = worker(folder_ / "broken", 1);
  ASSERT_NE(victim, 0);
  kill(victim, SIGKILL);
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_CONTAINS(job.err(), "restart 1 of 1 after: rank 1 on ");
  EXPECT_CONTAINS(job.err(),
                  "(pid " + std::to_string(victim) + ") failed first: killed by signal 9 (Killed)");
  EXPECT_CONTAINS(job.out(), "resumed ");
  expect_same_end(folder_ / "whole", folder_ / "broken");
}

// On both nodes, whichever rank it was: also when rank 0 dies, with the store in it.
TEST_F(LaunchTrain, TwoNodesStartAgainTogether) {
  const std::string secret = folder_ / "secret";
  test_support::write_text(secret, std::string(64, '5'));
  chmod(secret.c_str(), 0600);
  expect_success(launch(Words{"--nproc-per-node", "2"} + glyph_train(folder_ / "whole")));
  for (const int rank : {1, 0}) {
    const std::string run = folder_ / ("broken" + std::to_string(rank)),
                      port = std::to_string(free_port());
    const auto node = [&](const char* number) {
      return Words{engine_binary(),  "launch", "--nnodes",        "2",
                   "--node-rank",    number,   "--rdzv-endpoint", "127.0.0.1:" + port,
                   "--max-restarts", "2"} +
             glyph_train(run);
    };
    Running first(node("0"), {{"ENGINE_SECRET_FILE", secret}}),
        second(node("1"), {{"ENGINE_SECRET_FILE", secret}});
    ASSERT_TRUE(eventually([&] { return fs::exists(run + "/latest"); }))
        << first.err() << second.err();
    const pid_t victim = worker(run, rank);
    ASSERT_NE(victim, 0);
    kill(victim, SIGKILL);
    EXPECT_EQ(first.wait(), 0) << first.err();
    EXPECT_EQ(second.wait(), 0) << second.err();
    EXPECT_CONTAINS(first.err(), "restart 1 of 2 after: rank 0 on ");
    EXPECT_CONTAINS(second.err(), "restart 1 of 2 after: rank 1 on ");
    EXPECT_CONTAINS(first.out(), "resumed ");
    expect_same_end(folder_ / "whole", run);
  }
}

// Stands for ssh: notes its arguments, then runs the line as the other host's shell would, with
// nothing of this environment.
class LaunchOverSsh : public LaunchTrain {
 protected:
  void SetUp() override {
    LaunchTrain::SetUp();
    fs::create_directories(folder_ / "bin");
    test_support::write_text(
        folder_ / "bin/ssh",
        "#!/bin/bash\nprintf '%s\\n' \"$@\" >> '" + (folder_ / "arguments") +
            "'\nwhile [ \"$1\" != -- ]; do shift; done\n[ \"$2\" = 127.0.0.66 ] && { echo no route "
            ">&2; exit 255; }\n"
            "[ \"$2\" = 127.0.0.67 ] && { printf 'no \\033[31mroute\\n' >&2; exit 255; }\n"
            "exec env -i PATH=/usr/bin:/bin FAKE_HOST=\"$2\" sh -c \"${*:3}\"\n");
    chmod((folder_ / "bin/ssh").c_str(), 0755);
    environment_["PATH"] = (folder_ / "bin") + ":" + std::getenv("PATH");
  }
  std::map<std::string, std::string> environment_;
};

TEST_F(LaunchOverSsh, TrainsOnTwoHostsWithoutTellingTheSecret) {
  environment_["XDG_CONFIG_HOME"] = folder_ / "nowhere";
  const CommandResult r = expect_success(
      launch(Words{"--hosts", "127.0.0.2,127.0.0.3", "--nproc-per-node", "2"} + quick_train(),
             environment_));
  EXPECT_CONTAINS(r.out, ":0: engine ");
  EXPECT_CONTAINS(r.out, "4 ranks x 1 thread");
  EXPECT_FALSE(fs::exists(folder_ / "nowhere"));  // the key of the user is not needed
  const std::string arguments = test_support::read_text(folder_ / "arguments");
  EXPECT_CONTAINS(arguments, "BatchMode=yes");
  EXPECT_CONTAINS(arguments, "'--node-rank' '1'");
  EXPECT_LACKS(arguments, "SECRET");
}

TEST_F(LaunchOverSsh, WordsFoldersAndVariablesArrive) {
  environment_["NCCL_DEBUG"] = "WARN";
  environment_["MY_TOKEN"] = "private";
  const CommandResult r = expect_success(launch(
      {"--hosts=127.0.0.2,127.0.0.3", "--env", "GREETING=it's  \"me\"", "--", "bash", "-c",
       "echo \"$NODE_RANK at $FAKE_HOST: $1 | $GREETING | $NCCL_DEBUG | ${MY_TOKEN:-none} | $PWD\"",
       "x", "a  b'c\"d$HOME;*"},
      environment_));
  for (const char* node : {"0 at 127.0.0.2", "1 at 127.0.0.3"})
    EXPECT_CONTAINS(r.out, node +
                               std::string(": a  b'c\"d$HOME;* | it's  \"me\" | WARN | none | ") +
                               fs::current_path().string());
}

TEST_F(LaunchOverSsh, TheFailureOfAnyHostIsTheLastLineAndTheCode) {
  const TemporaryDirectory folder;
  const std::string pid = folder / "pid";
  const CommandResult r = launch(
      argv("--hosts 127.0.0.2,127.0.0.3 --nproc-per-node 2 -- bash -c",
           "[ $RANK = 0 ] && { echo $$ >" + pid + "; exit 69; }; [ $RANK = 3 ] && { " +
               test_support::wait_for_end_of(pid) + "; echo lost it >&2; exit 44; }; sleep 50"),
      environment_);
  EXPECT_EQ(r.exit_code, 44) << r.err;
  EXPECT_CONTAINS(last_line(r.err), "rank 3 on ");
  EXPECT_CONTAINS(last_line(r.err), "lost it");
  const CommandResult unreachable =
      launch(argv("--hosts 127.0.0.2,127.0.0.66 -- sleep 50"), environment_);
  EXPECT_EQ(unreachable.exit_code, 69) << unreachable.err;
  EXPECT_CONTAINS(last_line(unreachable.err),
                  "launch on 127.0.0.66: ssh failed; its last line: no route");
}

// The workers of the other host, which miss it, are stopped, and end as those that miss a peer do.
TEST_F(LaunchOverSsh, AHostWhoseLauncherIsKilledIsTheLastLine) {
  const TemporaryDirectory folder;
  const std::string ready = folder / "ready";
  const CommandResult r =
      launch(argv("--hosts 127.0.0.2,127.0.0.3 --max-restarts 1 -- bash -c",
                  "[ $RANK = 1 ] && { until [ -e " + ready +
                      " ]; do sleep 0.05; done; kill -9 $PPID; }; trap 'exit 69' TERM; touch " +
                      ready + "; sleep 50 & wait"),
             environment_);
  EXPECT_NE(r.exit_code, 0);
  EXPECT_CONTAINS(r.err, "engine: stopped all workers: launch on 127.0.0.3: ");
  EXPECT_LACKS(r.err, "after signal 15");
  EXPECT_CONTAINS(r.err, "engine: rank 0 on ");
  EXPECT_LACKS(r.err, "failed first");
  EXPECT_VALUES(last_line(r.err), "launch on 127.0.0.3: (not restarted: --max-restarts");
}

TEST_F(LaunchOverSsh, TheLastLineOfAnotherHostShowsNoEscapes) {
  const CommandResult r = launch(argv("--hosts 127.0.0.2,127.0.0.67 -- sleep 50"), environment_);
  EXPECT_EQ(r.exit_code, 69) << r.err;
  EXPECT_CONTAINS(last_line(r.err), "its last line: no \\x1b[31mroute");
}

TEST_F(LaunchOverSsh, SignalsAndDeathReachTheOtherHosts) {
  const std::string mark = test_support::unique_sleep();
  const Words words =
      argv(engine_binary(), "launch --hosts 127.0.0.2,127.0.0.3 --nproc-per-node 2 -- bash -c",
           "trap 'echo got it; exit 143' TERM; sleep " + mark + " & wait");
  const auto running = [&] { return test_support::sleepers(mark) == 4; };
  Running stopped(words, environment_);
  ASSERT_TRUE(eventually(running)) << stopped.err();
  kill(stopped.pid(), SIGTERM);
  EXPECT_EQ(stopped.wait(), 143) << stopped.err();
  for (const char* rank : {":0: got it", ":1: got it", ":2: got it", ":3: got it"})
    EXPECT_CONTAINS(stopped.out(), rank);
  EXPECT_TRUE(eventually([&] { return processes_with(mark).empty(); }));
  Running killed(words, environment_);
  ASSERT_TRUE(eventually(running)) << killed.err();
  kill(killed.pid(), SIGKILL);
  EXPECT_EQ(killed.wait(), 137);
  EXPECT_TRUE(eventually([&] { return processes_with(mark).empty(); }));
}

}  // namespace
