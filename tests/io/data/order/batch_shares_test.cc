// Tests that weights divide steps: each sample once, in proportion, at any step.
#include "io/data/order/batch_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "io/base/files/io_error.h"
#include "io/data/order/sampler.h"

namespace io {
namespace {

using Weights = std::vector<std::int64_t>;

const std::vector<Weights> kWeights{
    {3, 1},     {1, 3},         {1, 1, 2},    {5, 1, 1, 1}, {1000, 1},
    {997, 331}, {1, 10'000, 1}, {7, 7, 7, 8}, {2, 1, 4, 3}, {1, 2, 3, 4, 5, 6, 7}};

std::vector<Sampler> ranks_with(std::int64_t size, std::int64_t batch, const Weights& weights,
                                int parts = 0) {
  std::vector<Sampler> ranks;
  for (std::size_t rank = 0; rank < weights.size(); ++rank)
    ranks.emplace_back(SamplerOptions{.size = size,
                                      .global_batch = batch,
                                      .rank = static_cast<int>(rank),
                                      .world_size = static_cast<int>(weights.size()),
                                      .seed = 5,
                                      .parts = parts,
                                      .shares = BatchShares(weights)});
  return ranks;
}

// The samples of one step of all ranks, in rank order.
Weights joined_step(const std::vector<Sampler>& ranks, std::int64_t step) {
  Weights all;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto part = ranks[rank].indices(step);
    EXPECT_EQ(std::ssize(part), ranks[0].local_count(step, static_cast<int>(rank)));
    EXPECT_LE(std::ssize(part), ranks[rank].max_local_count());
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(BatchShares, EachStepHasItsSamplesOnceForAnyWeights) {
  for (const Weights& weights : kWeights)
    for (const std::int64_t size : {1, 7, 97, 1000})
      for (const std::int64_t batch : {1, 3, 32, 97, 5000}) {
        SCOPED_TRACE(BatchShares(weights).text() + ", " + std::to_string(size) + " in steps of " +
                     std::to_string(batch));
        const Sampler alone({.size = size, .global_batch = batch, .seed = 5});
        const std::vector<Sampler> ranks = ranks_with(size, batch, weights);
        for (std::int64_t step = 0; step < alone.steps_per_epoch(); ++step) {
          const auto expected = alone.indices(step);
          ASSERT_TRUE(std::ranges::equal(joined_step(ranks, step), expected)) << "step " << step;
        }
      }
}

TEST(BatchShares, AreInProportionInEachStepAndExactlySoOverSteps) {
  for (const Weights& weights : kWeights) {
    const BatchShares shares(weights);
    double total = 0;
    for (const std::int64_t weight : weights) total += static_cast<double>(weight);
    for (const std::int64_t batch : {1, 2, 31, 32, 100}) {
      SCOPED_TRACE(shares.text() + " of " + std::to_string(batch));
      const auto period = static_cast<std::int64_t>(total);
      for (int rank = 0; rank < shares.ranks(); ++rank) {
        const double exact = static_cast<double>(batch) *
                             static_cast<double>(weights[static_cast<std::size_t>(rank)]) / total;
        std::int64_t sum = 0;
        for (std::int64_t step = 0; step < period; ++step) {
          const std::int64_t first = step * batch,
                             count = shares.samples_before(rank + 1, {step, first, batch}) -
                                     shares.samples_before(rank, {step, first, batch});
          ASSERT_GE(count, 0);
          ASSERT_LT(std::abs(static_cast<double>(count) - exact), 1) << "step " << step;
          ASSERT_LE(count, shares.max_samples(rank, batch));
          sum += count;
        }
        EXPECT_EQ(sum, batch * weights[static_cast<std::size_t>(rank)])
            << "rank " << rank << " over " << period << " steps";
      }
    }
  }
}

TEST(BatchShares, EqualWeightsAreEqualShares) {
  EXPECT_TRUE(BatchShares(Weights{4, 4, 4}).are_equal());
  EXPECT_EQ(BatchShares(Weights{6, 2}), BatchShares(Weights{3, 1}));
  EXPECT_EQ(BatchShares(Weights{6, 2}).text(), "3:1");
  for (const Weights& bad : {Weights{0, 1}, Weights{1, -1}, Weights{1, 10'001}})
    EXPECT_THROW(BatchShares{bad}, ConfigError);
}

TEST(BatchShares, ChangeBetweenAnyTwoStepsOfAnEpoch) {
  constexpr std::int64_t kSize = 97, kBatch = 10;
  const Sampler alone({.size = kSize, .global_batch = kBatch, .seed = 5});
  std::vector<Sampler> ranks;
  ranks.reserve(3);
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back(SamplerOptions{.size = kSize,
                                      .global_batch = kBatch,
                                      .rank = rank,
                                      .world_size = 3,
                                      .seed = 5,
                                      .shares_change = true});
  const Weights before = joined_step(ranks, 3);
  for (const Weights& weights : {Weights{3, 1, 1}, Weights{1, 5, 1}, Weights{2, 2, 2}})
    for (std::int64_t step = 0; step < alone.steps_per_epoch(); ++step) {
      for (Sampler& rank : ranks) rank.set_shares(BatchShares(weights));
      ASSERT_TRUE(std::ranges::equal(joined_step(ranks, step), alone.indices(step))) << step;
    }
  EXPECT_EQ(joined_step(ranks, 3), before);
}

TEST(BatchSharesInWholeSteps, EachStepHasItsSamplesOnceForAnyWeights) {
  for (const Weights& weights : kWeights)
    for (const std::int64_t size : {1, 7, 97, 1000})
      for (const std::int64_t batch : {1, 3, 32, 97, 5000}) {
        const auto ranks = static_cast<int>(weights.size());
        const BatchShares shares(weights);
        if (static_cast<double>(shares.fraction(0)) * ranks > kMaxShareRatio ||
            shares.fraction(1) * ranks > kMaxShareRatio)
          continue;
        SCOPED_TRACE(shares.text() + ", " + std::to_string(size) + " in steps of " +
                     std::to_string(batch));
        const Sampler alone({.size = size, .global_batch = batch, .seed = 5});
        std::vector<Sampler> all;
        for (int rank = 0; rank < ranks; ++rank) {
          all.emplace_back(SamplerOptions{.size = size,
                                          .global_batch = batch,
                                          .rank = rank,
                                          .world_size = ranks,
                                          .seed = 5,
                                          .shares_change = true});
          all.back().set_shares(shares.in_whole_steps());
        }
        for (std::int64_t step = 0; step < alone.steps_per_epoch(); ++step)
          ASSERT_TRUE(std::ranges::equal(joined_step(all, step), alone.indices(step))) << step;
      }
}

TEST(BatchSharesInWholeSteps, ASlowRankTakesSomeStepsWithAnEqualShare) {
  for (const Weights& weights :
       {Weights{3, 1}, Weights{1, 3}, Weights{2, 2, 1}, Weights{4, 1, 2, 5}, Weights{700, 512}}) {
    const BatchShares shares = BatchShares(weights).in_whole_steps();
    SCOPED_TRACE(shares.text());
    const std::int64_t ranks = shares.ranks(), batch = 12 * ranks, period = 1212;
    for (int rank = 0; rank < ranks; ++rank) {
      std::int64_t steps = 0, samples = 0;
      for (std::int64_t step = 0; step < period; ++step) {
        const BatchShares::StepSamples all{step, step * batch, batch};
        const std::int64_t count =
            shares.samples_before(rank + 1, all) - shares.samples_before(rank, all);
        if (shares.step_fraction(rank) < 1) {
          ASSERT_TRUE(count == 0 || count == 12) << step << ": " << count;
        }
        ASSERT_LE(count, max_changing_share(batch, static_cast<int>(ranks)));
        steps += count > 0;
        samples += count;
      }
      EXPECT_NEAR(static_cast<double>(steps), shares.step_fraction(rank) * period, 1.01);
      EXPECT_NEAR(static_cast<double>(samples), shares.fraction(rank) * period * batch, 25)
          << "rank " << rank;
    }
  }
}

TEST(BatchSharesInWholeSteps, FillNoBufferBeyondItsLimit) {
  Weights weights(20, 10);
  weights[3] = 45;
  const BatchShares shares = BatchShares(weights).in_whole_steps();
  constexpr std::int64_t kBatch = 200;
  for (std::int64_t step = 0; step < 100; ++step)
    for (int rank = 0; rank < 20; ++rank) {
      const BatchShares::StepSamples all{step, step * kBatch, kBatch};
      ASSERT_LE(shares.samples_before(rank + 1, all) - shares.samples_before(rank, all),
                max_changing_share(kBatch, 20));
    }
}

TEST(BatchSharesInWholeSteps, EqualSharesStayEqual) {
  EXPECT_EQ(BatchShares().in_whole_steps(), BatchShares());
  EXPECT_NE(BatchShares(Weights{3, 1}).in_whole_steps(), BatchShares(Weights{3, 1}));
}

TEST(BatchShares, AreRejectedWhereRanksHaveFixedSamples) {
  const SamplerOptions two{.size = 60, .global_batch = 12, .world_size = 2};
  const auto with = [&](auto change) {
    SamplerOptions options = two;
    change(options);
    return options;
  };
  const BatchShares uneven(Weights{3, 1});
  for (const SamplerOptions& options : {with([&](SamplerOptions& o) {
                                          o.shares = BatchShares(Weights{3, 1, 1});
                                        }),
                                        with([&](SamplerOptions& o) {
                                          o.shares = uneven;
                                          o.shard = Shard::kStrided;
                                        }),
                                        with([&](SamplerOptions& o) {
                                          o.shares_change = true;
                                          o.shard = Shard::kFile;
                                        }),
                                        with([&](SamplerOptions& o) {
                                          o.shares = uneven;
                                          o.uneven = Uneven::kPad;
                                        }),
                                        with([&](SamplerOptions& o) {
                                          o.shares_change = true;
                                          o.parts = 8;
                                        })})
    EXPECT_THROW(Sampler{options}, ConfigError);
  Sampler many({.size = 600, .global_batch = 80, .world_size = 8, .shares_change = true});
  EXPECT_EQ(many.max_local_count(), 40) << "four times an equal share";
  EXPECT_NO_THROW(many.set_shares(BatchShares(Weights{7, 1, 1, 1, 1, 1, 1, 1})));
  EXPECT_THROW(many.set_shares(BatchShares(Weights{8, 1, 1, 1, 1, 1, 1, 1})), ConfigError);
  EXPECT_THROW(many.set_shares(uneven), ConfigError);
}

TEST(BatchShares, DividePartsSoThatEachRankHasOne) {
  EXPECT_EQ(divide_parts(8, 3, {}), (std::vector{0, 2, 5, 8}));
  EXPECT_EQ(divide_parts(8, 2, BatchShares(Weights{3, 1})), (std::vector{0, 6, 8}));
  EXPECT_EQ(divide_parts(8, 2, BatchShares(Weights{1000, 1})), (std::vector{0, 7, 8}));
  EXPECT_EQ(divide_parts(8, 3, BatchShares(Weights{1, 1000, 1})), (std::vector{0, 1, 7, 8}));
  EXPECT_EQ(divide_parts(4, 4, BatchShares(Weights{9, 1, 1, 1})), (std::vector{0, 1, 2, 3, 4}));
  for (const Weights& weights : kWeights) {
    const auto bounds = divide_parts(8, static_cast<int>(weights.size()), BatchShares(weights));
    EXPECT_EQ(bounds.front(), 0);
    EXPECT_EQ(bounds.back(), 8);
    EXPECT_TRUE(std::ranges::adjacent_find(bounds, std::greater_equal()) == bounds.end());
    const std::vector<Sampler> ranks = ranks_with(60, 13, weights, 8);
    const Sampler alone({.size = 60, .global_batch = 13, .seed = 5, .parts = 8});
    for (std::int64_t step = 0; step < alone.steps_per_epoch(); ++step)
      ASSERT_TRUE(std::ranges::equal(joined_step(ranks, step), alone.indices(step))) << step;
  }
}

}  // namespace
}  // namespace io
