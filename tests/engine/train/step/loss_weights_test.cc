// Sums of the weights of a step: the same on every rank, for any shares and steps in progress.
#include "engine/train/step/loss_weights.h"

#include <gtest/gtest.h>

#include <vector>

namespace engine {
namespace {

constexpr std::int64_t kSize = 23, kBatch = 5;

io::Sampler sampler_of(int rank, int world) {
  return io::Sampler(
      {.size = kSize, .global_batch = kBatch, .rank = rank, .world_size = world, .seed = 4});
}

std::vector<double> weights() {
  std::vector<double> values;
  for (std::int64_t i = 0; i < kSize; ++i) values.push_back(static_cast<double>(i % 4) / 3);
  return values;
}

double sum_of(std::span<const std::int64_t> samples) {
  double sum = 0;
  for (const std::int64_t sample : samples) sum += weights()[static_cast<std::size_t>(sample)];
  return sum;
}

StepCounts counts_of(const io::Sampler& sampler, const LossWeights::Step& step, int rank) {
  return {.local = sampler.local_count(step.number, rank, step.taken),
          .global = sampler.global_count(step.number, step.taken)};
}

TEST(LossWeights, OfAllRanksAreThoseOfOneRank) {
  for (const std::int64_t epoch : {0, 3, 1})
    for (const std::int64_t number : {0, 2, 4})
      for (const std::int64_t taken : {0, 2}) {
        const LossWeights::Step step{.epoch = epoch, .number = number, .taken = taken};
        io::Sampler whole = sampler_of(0, 1);
        whole.set_epoch(epoch);
        const double expected = sum_of(whole.indices(number, taken));
        double locals = 0;
        for (int rank = 0; rank < 3; ++rank) {
          io::Sampler sampler = sampler_of(rank, 3), own = sampler_of(rank, 3);
          own.set_epoch(epoch);
          LossWeights loss_weights(weights());
          const std::vector<int> island{1, 2};
          const StepWeights found = loss_weights.of_step(
              step, counts_of(sampler, step, rank), own.indices(number, taken), island, sampler);
          EXPECT_EQ(found.global, expected) << "epoch " << epoch << ", step " << number;
          EXPECT_EQ(found.local, sum_of(own.indices(number, taken)));
          io::Sampler first = sampler_of(0, 3);
          first.set_epoch(epoch);
          EXPECT_NEAR(found.island, expected - sum_of(first.indices(number, taken)), 1e-12);
          locals += found.local;
        }
        EXPECT_NEAR(locals, expected, 1e-12);
      }
}

TEST(LossWeights, FollowTheEpochs) {
  io::Sampler sampler = sampler_of(0, 1), other = sampler_of(0, 1);
  LossWeights loss_weights(weights());
  for (const std::int64_t epoch : {0, 1, 2}) {
    other.set_epoch(epoch);
    const LossWeights::Step step{.epoch = epoch, .number = 1};
    EXPECT_EQ(loss_weights.of_step(step, counts_of(sampler, step, 0), other.indices(1), {}, sampler)
                  .global,
              sum_of(other.indices(1)));
  }
}

TEST(LossWeights, OfEqualWeightsAreTheirMultiples) {
  const StepCounts counts{.local = 2, .global = 5, .island = 3};
  io::Sampler sampler = sampler_of(0, 2);
  LossWeights none, three(std::vector<double>(kSize, 3));
  EXPECT_FALSE(none.given());
  EXPECT_TRUE(three.given());
  EXPECT_EQ(none.of_step({}, counts, {}, {}, sampler).global, 5);
  const StepWeights found = three.of_step({}, counts, {}, {}, sampler);
  EXPECT_EQ(found.local, 6);
  EXPECT_EQ(found.global, 15);
  EXPECT_EQ(found.island, 9);
}

TEST(LossWeights, AMeanOfNothingIsZero) {
  EXPECT_EQ(factor_of_mean(0), 0);
  EXPECT_EQ(factor_of_mean(4), 0.25);
}

}  // namespace
}  // namespace engine
