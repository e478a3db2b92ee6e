// Shares by speed: how they follow from measurements, and a training with a slow rank.
#include "engine/train/balance/share_balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/averaging/policies/averaging_policies.h"
#include "engine/averaging/statistics/replica_statistics.h"
#include "engine/averaging/sums/gradient_sum.h"
#include "io/base/files/io_error.h"
#include "models/model_catalog.h"
#include "tests/engine/train/delayed_sgd.h"
#include "tests/engine/train/tiny_training.h"
#include "tests/engine/train/trainer_fixture.h"

namespace {

using engine::MeasuredWork;
using engine::ShareBalance;
using engine::ShareBalanceOptions;

constexpr ShareBalanceOptions kTwoRanks{.ranks = 2};

// Passes this measurement of all ranks after enough steps.
bool measure_all(ShareBalance& balance, const std::vector<MeasuredWork>& ranks) {
  for (int step = 0; step < 5; ++step) balance.add_step({});
  return balance.update(ranks);
}

TEST(SharesBySpeed, AreInProportionUpToTheLimit) {
  const auto fractions = [](const std::vector<double>& speeds) {
    const io::BatchShares shares = engine::shares_by_speed(speeds);
    std::vector<double> of_ranks;
    for (std::size_t r = 0; r < speeds.size(); ++r)
      of_ranks.push_back(shares.are_equal() ? 1 / static_cast<double>(speeds.size())
                                            : shares.fraction(static_cast<int>(r)));
    EXPECT_NEAR(std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0), 1, 1e-12);
    return of_ranks;
  };
  EXPECT_NEAR(fractions({300, 100})[0], 0.75, 1e-3);
  EXPECT_NEAR(fractions({5, 1, 2})[2], 0.25, 1e-3);
  EXPECT_NEAR(fractions({1e9, 1})[1], 0.001, 0.002) << "a slow rank keeps a share";
  // One of eight ranks gets at most four times its equal share; the others divide the rest.
  const auto eight = fractions({1000, 1, 1, 1, 1, 1, 1, 2});
  EXPECT_LE(eight[0], 0.5);
  EXPECT_GT(eight[0], 0.49);
  EXPECT_NEAR(eight[7], 2 * eight[1], 1e-3);
  EXPECT_EQ(fractions({7, 7, 7})[1], 1.0 / 3);
}

TEST(ShareBalance, ChangesForMoreThanATenthAndMeasuresAgain) {
  ShareBalance balance(kTwoRanks);
  EXPECT_FALSE(balance.update({})) << "nothing is measured";
  EXPECT_FALSE(measure_all(balance, {{100, 1}, {95, 1}})) << "noise";
  EXPECT_TRUE(balance.shares().are_equal());
  EXPECT_TRUE(measure_all(balance, {{300, 1}, {100, 1}}));
  EXPECT_NEAR(balance.shares().fraction(0), 0.75, 1e-3);
  EXPECT_FALSE(balance.update(std::vector<MeasuredWork>{{100, 1}, {900, 1}}))
      << "the first step after a change does not count";
  EXPECT_FALSE(measure_all(balance, {{310, 1}, {100, 1}})) << "noise";
  EXPECT_FALSE(measure_all(balance, {{100, 0.4}, {900, 0.4}})) << "too short a time";
  EXPECT_NEAR(balance.shares().fraction(0), 0.75, 1e-3);
  EXPECT_TRUE(measure_all(balance, {{100, 2}, {900, 2}}));
  EXPECT_LT(balance.shares().fraction(0), 0.25);
}

TEST(ShareBalance, TheFirstStepIsNotMeasured) {
  ShareBalance balance(kTwoRanks);
  balance.add_step({1000, 100});
  EXPECT_EQ(balance.measured().samples, 0);
  for (int step = 0; step < 3; ++step) balance.add_step({8, 0.5});
  EXPECT_FALSE(balance.update(std::vector<MeasuredWork>{{24, 1.5}, {8, 1.5}})) << "three steps";
  balance.add_step({8, 0.5});
  EXPECT_EQ(balance.measured().samples, 32);
  EXPECT_EQ(balance.measured().seconds, 2);
  EXPECT_TRUE(balance.update(std::vector<MeasuredWork>{balance.measured(), {8, 2}}));
  EXPECT_EQ(balance.measured().samples, 0);
}

TEST(ShareBalance, ARankWithoutSamplesKeepsItsSpeed) {
  ShareBalance balance(kTwoRanks);
  EXPECT_FALSE(measure_all(balance, {{300, 1}, {0, 1}})) << "its speed is not known yet";
  EXPECT_TRUE(measure_all(balance, {{300, 1}, {100, 1}}));
  EXPECT_FALSE(measure_all(balance, {{300, 1}, {0, 0}}));
  EXPECT_NEAR(balance.shares().fraction(0), 0.75, 1e-3);
}

TEST(ShareBalance, ACheckpointKeepsTheSharesOfAsManyRanks) {
  ShareBalance saved(kTwoRanks), loaded(kTwoRanks), three({.ranks = 3});
  engine::StateCopy copy;
  copy.begin({});
  saved.capture(copy);
  EXPECT_TRUE(copy.checkpoint().counters.empty()) << "equal shares leave no trace";
  ASSERT_TRUE(measure_all(saved, {{300, 1}, {100, 1}}));
  saved.capture(copy);
  io::Checkpoint checkpoint = copy.take();
  checkpoint.world_size = 2;
  loaded.restore(checkpoint, "a.ckpt", {});
  EXPECT_EQ(loaded.shares(), saved.shares());
  three.restore(checkpoint, "a.ckpt", {});
  EXPECT_TRUE(three.shares().are_equal());
  loaded.restore({}, "b.ckpt", {});
  EXPECT_TRUE(loaded.shares().are_equal());
  checkpoint.counters.back().second = -4;
  EXPECT_THROW(loaded.restore(checkpoint, "a.ckpt", {}), io::DataError);
}

class KeepShares : public engine::TrainObserver {
 public:
  void on_report(const engine::StepReport& report) override { losses.push_back(report.loss); }
  void on_shares(const engine::TrainProgress& progress,
                 const engine::ShareReport& report) override {
    steps.push_back(progress.global_step);
    shares.push_back(report);
  }
  std::vector<double> losses;
  std::vector<std::int64_t> steps;
  std::vector<engine::ShareReport> shares;
};

engine::Graph with_statistics_of_all_ranks(const io::Dataset& set) {
  engine::Graph graph =
      models::build_model("convnet", {.sample_shape = {8, 8, 1}, .classes = set.classes()});
  EXPECT_GT(graph.synchronize_statistics(), 0);
  return graph;
}

// Returns the reports to rank 0 in two epochs of eight steps, in f64. With statistics of all ranks:
// in five epochs without reports, so that between most steps the ranks do not wait for each other.
KeepShares run_balanced(int world, std::chrono::milliseconds delay_of_last,
                        bool statistics_of_all = false) {
  KeepShares reported;
  trainer_fixture::in_threads(world, [&](backends::Group& group) {
    const auto control = group.make_communicator(), communicator = group.make_communicator(),
               statistics = group.make_communicator();
    const auto replicas = engine::make_rank_statistics(*statistics);
    tiny_training::Parts parts(
        {.shape = {8, 8, 1},
         .samples = 90,
         .batch = 12,
         .rank = group.rank(),
         .world_size = world,
         .shuffle = true,
         .shares_change = true,
         .storage = engine::DType::kF64,
         .make_graph = statistics_of_all ? with_statistics_of_all_ranks : nullptr});
    trainer_fixture::DelayedSgd optimizer(
        parts.model.parameters.values,
        group.rank() == world - 1 ? delay_of_last : std::chrono::milliseconds(0));
    engine::FlatBuffer& gradients = parts.model.parameters.gradients;
    const auto work =
        engine::make_accumulated_work({parts.plan, parts.model, optimizer, parts.pool},
                                      {.replicas = statistics_of_all ? replicas.get() : nullptr});
    const auto policy = engine::make_gradient_averaging(
        engine::make_plain_sum(*communicator, gradients), gradients);
    ShareBalance balance({.ranks = world, .first_seconds = 0.02, .later_seconds = 0.02});
    KeepShares keep;
    tiny_training::train(parts, {.optimizer = optimizer,
                                 .work = *work,
                                 .policy = *policy,
                                 .control = *control,
                                 .steps = statistics_of_all ? 40 : 16,
                                 .log_every = statistics_of_all ? 1000 : 1,
                                 .observer = &keep,
                                 .balance = &balance});
    if (group.rank() == 0) reported = std::move(keep);
  });
  return reported;
}

TEST(ShareBalance, ASlowRankGetsLessAndTheTrainingIsThatOfOneProcess) {
  const KeepShares one = run_balanced(1, {}), two = run_balanced(2, std::chrono::milliseconds(40));
  EXPECT_TRUE(one.shares.empty());
  ASSERT_FALSE(two.shares.empty());
  EXPECT_NE(two.steps.front() % 8, 0) << "the change is within an epoch";
  const engine::ShareReport& last = two.shares.back();
  ASSERT_EQ(last.samples.size(), 2u);
  ASSERT_EQ(last.samples_per_s.size(), 2u);
  EXPECT_GT(last.samples[0], last.samples[1]);
  ASSERT_EQ(two.losses.size(), one.losses.size());
  for (std::size_t step = 0; step < one.losses.size(); ++step)
    EXPECT_NEAR(two.losses[step], one.losses[step], 1e-12) << "step " << step + 1;
}

// The others wait for it in the exchanges of their forward passes: that is no work of their own.
TEST(ShareBalance, WaitingForStatisticsIsNotMeasured) {
  const KeepShares two = run_balanced(2, std::chrono::milliseconds(40), true);
  ASSERT_FALSE(two.shares.empty());
  EXPECT_GT(two.shares.back().samples[0], two.shares.back().samples[1]);
}

}  // namespace
