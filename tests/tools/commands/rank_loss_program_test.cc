// A rank is killed: rank 0 saves what the run can continue from, with every kind of averaging; rank
// 1 if rank 0 is killed.
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "tests/support/expect_contains.h"
#include "tests/tools/commands/interrupted_run.h"
#include "tests/tools/commands/program.h"

namespace {

using interrupted_run::expect_equal_bits_later;
using interrupted_run::interrupted;
using interrupted_run::last_reported_step;
using interrupted_run::Receiver;
using interrupted_run::training;
using test_support::CommandResult;
using test_support::expect_success;
using test_support::run_command;
using test_support::TemporaryDirectory;

class LossOfRank : public testing::TestWithParam<Receiver> {};

TEST_P(LossOfRank, LosesNoStepOfTheOthers) {
  for (const std::string backend : {"shm", "socket", "gloo", "zmq"}) {
    const TemporaryDirectory folder;
    const CommandResult lost =
        interrupted(folder / "run", {"--backend", backend}, SIGKILL, GetParam());
    EXPECT_EQ(lost.exit_code, 128 + SIGKILL) << lost.err;
    const std::string newest = io::find_newest_checkpoint(folder / "run", nullptr);
    ASSERT_NE(newest, "") << lost.err;
    EXPECT_CONTAINS(lost.err, "a rank was lost: saved " + newest + ", the last completed step");
    const std::int64_t step = io::load_checkpoint(newest).global_step;
    EXPECT_GE(step, last_reported_step(folder / "run.metrics"));
    EXPECT_CONTAINS(lost.err, "to continue: engine train --resume " + (folder / "run"));
    expect_equal_bits_later(folder, step, 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, LossOfRank, testing::Values(Receiver::kRank0, Receiver::kRank1),
                         [](const auto& tested) {
                           return tested.param == Receiver::kRank0 ? "zero" : "one";
                         });

// Codes leave a part unsent, which is lost with the rank: the last full checkpoint remains.
TEST(Loss, OfARankWithCompressedGradientsSavesNothing) {
  const TemporaryDirectory folder;
  const CommandResult lost =
      interrupted(folder / "run", {"--compress", "int8"}, SIGKILL, Receiver::kRank1);
  EXPECT_EQ(lost.exit_code, 128 + SIGKILL) << lost.err;
  EXPECT_EQ(io::find_newest_checkpoint(folder / "run", nullptr), "") << lost.err;
}

// Kills rank 1 of a run with these options. Returns the step that rank 0 saves, which stderr names.
std::int64_t step_saved_after_loss(const TemporaryDirectory& folder,
                                   const std::vector<std::string>& options, std::string& message) {
  const CommandResult lost = interrupted(folder / "run", options, SIGKILL, Receiver::kRank1);
  EXPECT_EQ(lost.exit_code, 128 + SIGKILL) << lost.err;
  const std::string newest = io::find_newest_checkpoint(folder / "run", nullptr);
  EXPECT_CONTAINS(lost.err, "engine: a rank was lost: saved " + newest + ", the ");
  EXPECT_CONTAINS(lost.err, "to continue: engine train --resume " + (folder / "run"));
  message = lost.err;
  return newest.empty() ? 0 : io::load_checkpoint(newest).global_step;
}

// Two ranks continue from the saved step, for five more.
void expect_resumed(const TemporaryDirectory& folder, std::int64_t step,
                    std::vector<std::string> options) {
  options.insert(options.end(), {"--spawn", "2", "--resume", "auto"});
  const CommandResult resumed =
      expect_success(run_command(training(folder / "run", std::to_string(step + 5), options)));
  EXPECT_CONTAINS(resumed.out,
                  "resumed " + (folder / "run") + "/" + io::checkpoint_file_name(step));
}

struct Averaging {
  std::string name;
  std::vector<std::string> options;
  bool same_bits = true;  // as a run that was never stopped
};
void PrintTo(const Averaging& averaging, std::ostream* out) { *out << averaging.name; }

class LossWithMeans : public testing::TestWithParam<Averaging> {};

// Averagings follow each fourth step and the ends of epochs, of six steps. Without momentum, or if
// it is averaged, the state after an averaging is the same on all ranks but for what codes have not
// sent.
TEST_P(LossWithMeans, RepeatsOnlyTheStepsSinceAnAveraging) {
  for (const std::string backend : {"shm", "socket"}) {
    const TemporaryDirectory folder;
    std::vector<std::string> options{"--sync-every", "4", "--momentum", "0", "--backend", backend};
    options.insert(options.end(), GetParam().options.begin(), GetParam().options.end());
    std::string message;
    const std::int64_t step = step_saved_after_loss(folder, options, message);
    ASSERT_GT(step, 0) << message;
    EXPECT_TRUE(step % 4 == 0 || step % 6 == 0) << step;
    if (GetParam().same_bits) {
      expect_equal_bits_later(folder, step, 5, options);
      continue;
    }
    expect_resumed(folder, step, options);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Policies, LossWithMeans,
    testing::Values(Averaging{"params", {"--sync", "params"}},
                    Averaging{"all_states",
                              {"--sync", "params", "--average-state", "all", "--momentum", "0.9"}},
                    Averaging{"slowmo", {"--sync", "slowmo"}},
                    Averaging{"diloco", {"--sync", "diloco"}},
                    Averaging{"post_local", {"--sync", "post-local", "--sync-warmup", "4"}},
                    Averaging{"local_steps", {"--sync", "params", "--local-steps", "2:1"}},
                    Averaging{"params_int8", {"--sync", "params", "--compress", "int8"}, false},
                    Averaging{
                        "diloco_sparse", {"--sync", "diloco", "--compress", "sparse"}, false}),
    [](const auto& tested) { return tested.param.name; });

class LossWithReplicas : public testing::TestWithParam<Averaging> {};

// Replicas are never equal: rank 0's continues after its last step.
TEST_P(LossWithReplicas, SavesThatOfRank0) {
  for (const std::string backend : {"shm", "socket"}) {
    const TemporaryDirectory folder;
    std::vector<std::string> options = GetParam().options;
    options.insert(options.end(), {"--sync-every", "4", "--backend", backend});
    std::string message;
    const std::int64_t step = step_saved_after_loss(folder, options, message);
    EXPECT_GE(step, last_reported_step(folder / "run.metrics")) << message;
    expect_resumed(folder, step, options);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Policies, LossWithReplicas,
    testing::Values(Averaging{"gossip", {"--sync", "gossip"}},
                    Averaging{"streaming", {"--sync", "streaming", "--sync-overlap", "1"}},
                    Averaging{"streaming_int8",
                              {"--sync", "streaming", "--sync-overlap", "1", "--compress", "int8"}},
                    Averaging{"late_ranks", {"--sync", "diloco", "--stale", "1"}}),
    [](const auto& tested) { return tested.param.name; });

// Rank 1 copies no averaging, and its replica is not that of rank 0: it saves if rank 0 is lost
// between the end of an epoch, of six steps, and the next step.
TEST(Loss, OfRank0WithAveragedParametersSavesOnlyWhatAllRanksHad) {
  for (const std::string sync : {"params", "streaming"}) {
    const TemporaryDirectory folder;
    const CommandResult lost = interrupted(
        folder / "run", {"--sync", sync, "--sync-every", "1000000"}, SIGKILL, Receiver::kRank0);
    EXPECT_EQ(lost.exit_code, 128 + SIGKILL) << lost.err;
    const std::string newest = io::find_newest_checkpoint(folder / "run", nullptr);
    if (!newest.empty()) {
      EXPECT_EQ(io::load_checkpoint(newest).global_step % 6, 0) << lost.err;
    }
  }
}

// Each rank has a model of its own: a checkpoint of one would replace the other.
TEST(Loss, OfAnIndependentReplicaSavesNothing) {
  const TemporaryDirectory folder;
  const CommandResult lost =
      interrupted(folder / "run", {"--sync", "none"}, SIGKILL, Receiver::kRank1);
  EXPECT_EQ(lost.exit_code, 128 + SIGKILL) << lost.err;
  EXPECT_EQ(io::find_newest_checkpoint(folder / "run", nullptr), "") << lost.err;
}

}  // namespace
