// Every optimizer in whole trainings: replicas stay equal, resuming continues bit by bit, states
// are averaged by their roles.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/optim/optimizer_spec.h"
#include "io/base/files/io_error.h"
#include "tests/support/expect_contains.h"
#include "tests/support/test_support.h"
#include "tests/training/exact_support.h"
#include "tests/training/session_runner.h"

namespace {

using exact_support::expect_in_sync;
using session_runner::Options;
using session_runner::same_bits;
using session_runner::train;
using session_runner::with;

class EveryOptimizer : public testing::TestWithParam<const engine::OptimizerSpec*> {
 protected:
  // Three layers with convolutions, in the middle of an epoch after three steps.
  Options base() const {
    return std::string("optimizer=") + GetParam()->name +
           " model=convnet synthetic-shape=8x8x1 steps=7 batch-size=13 clip-grad=0.5";
  }
};

TEST_P(EveryOptimizer, KeepsReplicasEqualAndLearns) {
  const auto ranks = train(3, with(base(), "verify-every=2 threads=2"));
  expect_in_sync(ranks);
  EXPECT_TRUE(ranks[0].desyncs.empty());
  EXPECT_FALSE(same_bits(ranks[0], train(1, with(base(), "steps=1"))[0], io::Section::kParameter));
}

TEST_P(EveryOptimizer, ResumesBitByBit) {
  const test_support::TemporaryDirectory folder;
  const Options saved = with(base(), "save-dir=" + folder.path().string());
  const auto whole = train(2, base());
  train(2, with(saved, "steps=3"));
  const auto resumed = train(2, with(saved, "resume=auto"));
  EXPECT_TRUE(same_bits(whole[0], resumed[0], io::Section::kParameter));
  EXPECT_EQ(whole[0].losses.back(), resumed[0].losses.back());
}

// Each rank's own states come back too.
TEST_P(EveryOptimizer, ResumesBitByBitBetweenAveragingsOfParameters) {
  const test_support::TemporaryDirectory folder;
  const Options local = with(base(), "sync=params sync-every=2");
  const Options saved = with(local, "save-dir=" + folder.path().string() + " save-every=3s");
  const auto whole =
      train(2, with(local, std::string("save-dir=") + folder / "whole" + " save-every=3s"));
  train(2, with(saved, "steps=3"));
  expect_in_sync(whole);
  const auto resumed = train(2, with(saved, "resume=auto"));
  EXPECT_TRUE(same_bits(whole[0], resumed[0], io::Section::kParameter));
}

// First moments alone only if no second ones divide them.
TEST_P(EveryOptimizer, AveragesTheStatesThatAreMoments) {
  const bool divides = std::ranges::count(GetParam()->states, engine::StateRole::kSecondMoment,
                                          &engine::OptimizerState::role) > 0;
  if (divides) {
    EXPECT_THROW(train(2, with(base(), "sync=params average-state=momentum")), io::ConfigError);
  }
  const auto ranks =
      train(2, with(base(), "sync=params average-state=" +
                                std::string(divides ? "momentum:1,second:1" : "momentum")));
  expect_in_sync(ranks);
  std::string expected;
  for (const engine::OptimizerState& state : GetParam()->states)
    expected += (expected.empty() ? "" : " and ") + std::string(state.name);
  EXPECT_CONTAINS(ranks[0].coverage, "the optimizer's " + expected + ",");
}

INSTANTIATE_TEST_SUITE_P(All, EveryOptimizer,
                         testing::ValuesIn(engine::optimizers().begin(),
                                           engine::optimizers().end()),
                         [](const auto& p) { return std::string(p.param->name); });

TEST(AverageState, MomentumIsRefusedWhereThereIsNone) {
  EXPECT_THROW(train(2, "sync=params average-state=momentum momentum=0"), io::ConfigError);
  const auto all = train(2, "sync=params average-state=all momentum=0");
  expect_in_sync(all);
}

}  // namespace
