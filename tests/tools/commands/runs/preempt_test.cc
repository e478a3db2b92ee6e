// Preemption: the run saves, exits with 75, goes on bit by bit, and asks SLURM for another turn.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "backends/group.h"
#include "io/checkpoint/checkpoint_directory.h"
#include "tests/support/command_words.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"
#include "tests/tools/commands/program.h"
#include "tests/tools/commands/runs/interrupted_run.h"

namespace {

using interrupted_run::expect_equal_bits_later;
using interrupted_run::interrupted;
using interrupted_run::Receiver;
using interrupted_run::training;
using test_support::argv;
using test_support::call;
using test_support::CommandResult;
using test_support::engine_binary;
using test_support::expect_success;
using test_support::run_command;
using test_support::TemporaryDirectory;
namespace fs = std::filesystem;

TEST(Preemption, SavesExitsWith75AndGoesOnBitByBit) {
  const TemporaryDirectory folder;
  const CommandResult stopped = interrupted(folder / "run", {}, SIGUSR1, Receiver::kParent);
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  const std::string newest = io::find_newest_checkpoint(folder / "run", nullptr);
  const std::int64_t step = io::load_checkpoint(newest).global_step;
  ASSERT_GT(step, 0);
  EXPECT_CONTAINS(stopped.err,
                  "engine: preempted by signal 10 (User defined signal 1) after step " +
                      std::to_string(step) + ": saved " + newest +
                      "; to continue: engine train --resume " + (folder / "run") + "\n");
  expect_equal_bits_later(folder, step, 25);
}

TEST(Stopping, ASecondSignalEndsAtOnceAndSaysSo) {
  const TemporaryDirectory folder;
  const std::string metrics = folder / "metrics";
  CommandResult result;
  std::atomic<bool> ended{false};
  std::thread runner([&] {
    result = run_command(training(folder / "run", "100000000", {"--metrics", metrics}), {}, 40'000);
    ended = true;
  });
  std::vector<int> started;
  EXPECT_TRUE(test_support::eventually([&] {
    started = test_support::workers_of(getpid());
    return ended || (fs::exists(metrics) && started.size() == 1);
  }));
  if (started.size() == 1) {
    kill(started[0], SIGSTOP);  // so that it takes no step between the two
    kill(started[0], SIGINT);
    kill(started[0], SIGTERM);
    kill(started[0], SIGCONT);
  }
  runner.join();
  // A handler that is interrupted before its first instruction counts as the second signal.
  EXPECT_TRUE(result.exit_code == 128 + SIGTERM || result.exit_code == 128 + SIGINT)
      << result.exit_code << ": " << result.err;
  EXPECT_VALUES(result.err, "second signal: without saving");
}

TEST(Preemption, WorksWithEveryBackend) {
  for (const backends::BackendInfo& backend : backends::list_backends()) {
    if (!backend.usable || backend.device_memory || backend.name == "inproc") continue;
    for (const int signal : {SIGUSR1, SIGTERM}) {
      const TemporaryDirectory folder;
      const CommandResult stopped =
          interrupted(folder / "run", {"--backend", backend.name, "--preempt-signal", "USR1,TERM"},
                      signal, Receiver::kParent);
      EXPECT_EQ(stopped.exit_code, 75) << backend.name << ": " << stopped.err;
      EXPECT_TRUE(fs::exists(folder / "run/latest")) << backend.name;
    }
  }
}

// SGE and LSF send SIGUSR2 before they end a job, and a limit of CPU time SIGXCPU.
TEST(Preemption, EveryWarningOfASchedulerSaves) {
  for (const int signal : {SIGUSR2, SIGXCPU})
    for (const Receiver receiver : {Receiver::kParent, Receiver::kRank1}) {
      const TemporaryDirectory folder;
      const CommandResult stopped = interrupted(folder / "run", {}, signal, receiver);
      EXPECT_EQ(stopped.exit_code, 128 + signal) << stopped.err;
      EXPECT_TRUE(fs::exists(folder / "run/latest")) << stopped.err;
    }
  const TemporaryDirectory folder;
  const CommandResult stopped =
      interrupted(folder / "run", {"--preempt-signal", "XCPU"}, SIGXCPU, Receiver::kParent);
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
}

// Without -S the limit that kills is the same.
TEST(Preemption, ALimitOfCpuTimeSavesBeforeItKills) {
  for (const std::string limit : {"ulimit -S -t 2", "ulimit -t 4"}) {
    const TemporaryDirectory folder;
    const std::vector<std::string> train = training(folder / "run", "100000000", {});
    std::vector<std::string> command{"/bin/sh", "-c", limit + "; exec \"$0\" \"$@\""};
    command.insert(command.end(), train.begin(), train.end());
    const CommandResult stopped = run_command(command);
    EXPECT_EQ(stopped.exit_code, 128 + SIGXCPU) << limit << ": " << stopped.err;
    EXPECT_TRUE(fs::exists(folder / "run/latest")) << limit << ": " << stopped.err;
  }
}

TEST(Preemption, OneRanksSignalStopsAllAfterTheSameStep) {
  const TemporaryDirectory folder;
  const CommandResult stopped =
      interrupted(folder / "run", {"--preempt-signal", "USR2,SIGTERM"}, SIGTERM, Receiver::kRank1);
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_TRUE(fs::exists(folder / "run/latest"));
}

// Rank 1 is stopped, and heartbeats are too rare to notice it: without the signal rank 0 would wait
// in its collective for --timeout.
TEST(Preemption, AStopDoesNotWaitForARankThatDoesNotCome) {
  for (const backends::BackendInfo& backend : backends::list_backends()) {
    if (!backend.usable || backend.device_memory || backend.name == "inproc") continue;
    const TemporaryDirectory folder;
    const std::string metrics = folder / "metrics";
    std::vector<CommandResult> results(2);
    std::vector<std::thread> ranks;
    for (const std::size_t rank : {0u, 1u}) {
      ranks.emplace_back([&, rank] {
        results[rank] = run_command(training(
            folder / "run", "100000000",
            {"--rank", std::to_string(rank), "--world-size", "2", "--init-method",
             "file://" + (folder / "meet"), "--heartbeat", "100", "--log-every", "2", "--metrics",
             metrics, "--backend", backend.name, "--flight-dir", folder / "flight"}));
      });
    }
    std::vector<int> pids(2, 0);
    const bool running = test_support::eventually([&] {
      for (const int pid : test_support::workers_of(getpid())) {
        const std::string line = test_support::command_line_of(pid);
        for (const std::size_t rank : {0u, 1u}) {
          using namespace std::string_literals;
          if (line.find("--rank\0"s + std::to_string(rank)) != std::string::npos) pids[rank] = pid;
        }
      }
      return pids[0] != 0 && pids[1] != 0 && fs::exists(metrics) &&
             test_support::read_text(metrics).find("\"event\":\"step\"") != std::string::npos;
    });
    if (running) {
      kill(pids[1], SIGSTOP);
      kill(pids[0], SIGTERM);
    }
    ranks[0].join();
    if (running) kill(pids[1], SIGCONT);
    ranks[1].join();
    ASSERT_TRUE(running) << results[0].err << results[1].err;
    EXPECT_EQ(results[0].exit_code, 128 + SIGTERM) << backend.name << ": " << results[0].err;
    EXPECT_EQ(results[1].exit_code, 69) << backend.name << ": " << results[1].err;
    EXPECT_VALUES(results[0].err, "waiting ranks: saved");

    const std::string newest = io::find_newest_checkpoint(folder / "run", nullptr);
    const std::int64_t step = io::load_checkpoint(newest).global_step;
    expect_equal_bits_later(folder, step, 5);
  }
}

// Heartbeats are too rare to notice it.
TEST(Preemption, AFrozenRankDoesNotHoldUpTheOthersEnd) {
  for (const auto& [signal, code] : {std::pair{SIGTERM, 128 + SIGTERM}, std::pair{SIGUSR1, 75}}) {
    const TemporaryDirectory folder;
    const CommandResult stopped = interrupted(folder / "run", {"--heartbeat", "1000"}, signal,
                                              Receiver::kParent, {}, /*frozen=*/true);
    EXPECT_EQ(stopped.exit_code, code) << stopped.err;
    program::expect_words(stopped.err, {"; to continue: engine train --resume " + (folder / "run"),
                                        "1 of 2 workers"});
  }
}

TEST(Preemption, AClosedSessionIsAStop) {
  const TemporaryDirectory folder;
  const CommandResult stopped = interrupted(folder / "run", {}, SIGHUP, Receiver::kParent);
  EXPECT_EQ(stopped.exit_code, 129) << stopped.err;
  program::expect_words(stopped.err, {"stopped by signal 1 (Hangup) after step ", ": saved "});
}

// Runs for ever on one rank; `commands` then has its process as $pid.
CommandResult shell_training(const TemporaryDirectory& folder, const std::string& options,
                             const std::string& commands) {
  const std::string out = folder / "out";
  return run_command(
      {"/bin/sh", "-c",
       "trap '' $0\n\"$1\" train --model mlp --dataset synthetic --synthetic-shape 6x6x1 "
       "--synthetic-size 96 --batch-size 16 --threads 1 --eval-every 0 --steps 100000000 "
       "--log-every 2 " +
           options + " >" + out + " & pid=$!\nuntil grep -q Step " + out +
           "; do kill -0 $pid || exit 1; sleep 0.05; done\n" + commands + "\nwait $pid",
       commands.find("-HUP") == std::string::npos ? "USR2" : "HUP", engine_binary()},
      {}, 40'000);
}

TEST(Preemption, WithoutAFolderAWarningIsAStopToo) {
  const TemporaryDirectory folder;
  const CommandResult stopped = shell_training(folder, "", "kill -USR1 $pid");
  EXPECT_EQ(stopped.exit_code, 128 + SIGUSR1) << stopped.err;
  program::expect_words(stopped.err, {"stopped by signal 10 (User defined signal 1) after step ",
                                      "nothing was saved"});
}

TEST(Preemption, NohupStaysNohup) {
  const TemporaryDirectory folder;
  const CommandResult stopped =
      shell_training(folder, "", "kill -HUP $pid; sleep 0.5; kill -TERM $pid");
  EXPECT_EQ(stopped.exit_code, 128 + SIGTERM) << stopped.err;
}

TEST(Preemption, AReaderThatLeavesCostsNothing) {
  const TemporaryDirectory folder;
  for (const bool saved : {true, false}) {
    const CommandResult result = run_command(
        argv("/bin/sh -c",
             "{ \"$0\" train --model mlp --dataset synthetic --synthetic-shape 6x6x1 "
             "--synthetic-size 96 --batch-size 16 --threads 1 --log-every 2 --epochs 300 " +
                 (saved ? "--save-dir " + (folder / "run") : "") + "; echo $? >" +
                 (folder / "code") + "; } | head -2 >/dev/null",
             engine_binary()),
        {}, 40'000);
    EXPECT_EQ(test_support::read_text(folder / "code"), "74\n") << result.err;
    program::expect_words(result.err, {"standard output Broken pipe"});
    if (!saved) continue;
    program::expect_words(result.err, {"the run continues, see " + (folder / "run") + "/log.txt"});
    EXPECT_TRUE(fs::exists(folder / "run/step-00001800.ckpt"));
  }
}

TEST(Preemption, AnInterruptIsNone) {
  const TemporaryDirectory folder;
  const CommandResult stopped = interrupted(folder / "run", {}, SIGINT, Receiver::kParent);
  EXPECT_EQ(stopped.exit_code, 130);
  program::expect_words(stopped.err,
                        {"engine: stopped by signal 2 (Interrupt) after step ",
                         "; to continue: engine train --resume " + (folder / "run") + "\n"});
}

// An evaluation may take minutes, and what asks to stop kills soon after: all steps are saved.
TEST(Preemption, AnEvaluationIsGivenUpForASignal) {
  const TemporaryDirectory folder;
  std::string text(16'000'000, 'a');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i * i % 7);
  test_support::write_text(folder / "input.txt", text);
  const std::string run = folder / "run", metrics = folder / "metrics";
  std::vector<std::string> command =
      argv(engine_binary(), "train --model gpt-nano --dataset text --data-dir", folder.path(),
           "--text-stride 1 --threads 1 --batch-size 4 --steps 2 --log-every 1 --save-dir", run,
           "--metrics", metrics, "--spawn 2");
  CommandResult result;
  std::atomic<bool> ended{false};
  std::thread runner([&] {
    result = run_command(command, {}, 60'000);
    ended = true;
  });
  const auto trained = [&] {
    return fs::exists(metrics) &&
           test_support::read_text(metrics).find("\"step\":2,") != std::string::npos;
  };
  EXPECT_TRUE(test_support::eventually([&] { return ended || trained(); }));
  EXPECT_FALSE(ended) << "the evaluation was over too early";
  for (const pid_t pid : test_support::workers_of(getpid())) kill(pid, SIGTERM);
  runner.join();
  EXPECT_EQ(result.exit_code, 143) << result.err;
  program::expect_words(result.err, {"stopped by signal 15 (Terminated) after step 2: saved "});
  EXPECT_TRUE(fs::exists(run + "/step-00000002.ckpt")) << result.err;
}

class Requeue : public testing::Test {
 protected:
  // A scontrol that notes what it is told and ends with `status`.
  std::map<std::string, std::string> slurm(int status) {
    const std::string program = folder_ / "scontrol";
    test_support::write_text(program, "#!/bin/sh\necho \"$@\" >>" + (folder_ / "told") + "\nexit " +
                                          std::to_string(status) + "\n");
    chmod(program.c_str(), 0755);
    return {{"PATH", folder_.path().string() + ":" + std::getenv("PATH")},
            {"SLURM_JOB_ID", "4711"}};
  }
  TemporaryDirectory folder_;
};

TEST_F(Requeue, TellsSlurmOnce) {
  const CommandResult stopped =
      interrupted(folder_ / "run", {"--requeue"}, SIGUSR1, Receiver::kParent, slurm(0));
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_CONTAINS(stopped.err, "job 4711 was requeued");
  EXPECT_EQ(test_support::read_text(folder_ / "told"), "requeue 4711\n");
}

TEST_F(Requeue, ATaskOfAnArrayGoesBackAloneAndAFailureIsSaid) {
  auto environment = slurm(3);
  environment["SLURM_ARRAY_JOB_ID"] = "4700";
  environment["SLURM_ARRAY_TASK_ID"] = "11";
  const CommandResult stopped =
      interrupted(folder_ / "run", {"--requeue"}, SIGUSR1, Receiver::kParent, environment);
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_VALUES(stopped.err, "scontrol requeue 4700_11 status 3; not requeued");
  EXPECT_EQ(test_support::read_text(folder_ / "told"), "requeue 4700_11\n");
}

TEST_F(Requeue, IsRefusedBeforeTheTrainingWhereItCannotWork) {
  const CommandResult none = run_command(training(folder_ / "run", "1", {"--requeue"}));
  EXPECT_EQ(none.exit_code, 78);
  EXPECT_CONTAINS(none.err, "SLURM_JOB_ID is not set");
  const CommandResult name =
      run_command(training(folder_ / "run", "1", {"--preempt-signal", "USR3"}));
  EXPECT_EQ(name.exit_code, 78);
  EXPECT_VALUES(name.err, "--preempt-signal 'USR3' USR1, USR2, XCPU, TERM INT");
}

}  // namespace
