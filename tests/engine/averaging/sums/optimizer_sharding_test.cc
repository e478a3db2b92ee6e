// Who updates what.
#include "engine/averaging/sums/optimizer_sharding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/ops/optim_step/optimizer_step.h"

namespace engine {
namespace {

std::vector<NamedLayout> tensors(const std::vector<std::int64_t>& sizes) {
  std::vector<NamedLayout> all;
  for (const std::int64_t size : sizes)
    all.push_back({"t" + std::to_string(all.size()), TensorLayout::plain(Shape{size})});
  return all;
}

// How often each element is dealt out.
std::vector<int> dealt(const OptimizerShards& shares, std::int64_t size) {
  std::vector<int> times(static_cast<std::size_t>(size));
  for (const std::vector<Elements>& parts : shares.of_rank)
    for (const Elements& part : parts)
      for (std::int64_t i = 0; i < part.count; ++i)
        ++times.at(static_cast<std::size_t>(part.first + i));
  return times;
}

TEST(DealElements, EachBelongsToOneRankAndSharesAreEven) {
  const ParameterBuffer parameters(DType::kF32, tensors({70'001, 33, 190'000, 5'000}), {}, 1);
  for (int world = 1; world <= 5; ++world) {
    const BucketOptions buckets{.bytes = 300'000, .multiple = shard_alignment(world)};
    const OptimizerShards shares = shard_elements(parameters, buckets, world - 1, world);
    EXPECT_EQ(std::ranges::count(dealt(shares, parameters.values.size()), 1),
              parameters.values.size());
    for (const std::vector<Elements>& parts : shares.of_rank) {
      EXPECT_NEAR(static_cast<double>(count_of(parts)),
                  static_cast<double>(parameters.values.size()) / world,
                  static_cast<double>(ops::kSquaresBlock));
      for (const Elements& part : parts) {  // blocks of the norm lie on one rank
        if (part.first >= parameters.gradients.size()) continue;
        EXPECT_EQ(part.first % ops::kSquaresBlock, 0);
      }
    }
  }
}

TEST(DealElements, OfASmallModelTheFirstRanksHaveAll) {
  const ParameterBuffer parameters(DType::kF32, tensors({5'000}));
  const BucketOptions buckets{.multiple = shard_alignment(3)};
  const OptimizerShards shares = shard_elements(parameters, buckets, 2, 3);
  EXPECT_EQ(count_of(shares.of_rank[0]), ops::kSquaresBlock);
  EXPECT_EQ(count_of(shares.of_rank[1]), parameters.values.size() - ops::kSquaresBlock);
  EXPECT_TRUE(shares.own().empty());
}

TEST(DealTensors, TheLargestGoFirstToWhoHasLeast) {
  const FlatBuffer values(DType::kF32, tensors({16, 64, 48, 160, 32}));
  const OptimizerShards shares = shard_tensors(values, 0, 2);
  EXPECT_EQ(std::ranges::count(dealt(shares, values.size()), 1), values.size());
  EXPECT_EQ(count_of(shares.of_rank[0]), 160);
  EXPECT_EQ(count_of(shares.of_rank[1]), 160);
}

TEST(BucketEnds, OfAMultiple) {
  EXPECT_EQ(bucket_ends(100, sizeof(float), 100, 16),
            (std::vector<std::int64_t>{16, 32, 48, 64, 80, 96, 100}));
  EXPECT_EQ(bucket_ends(100, sizeof(float), 8, 32), (std::vector<std::int64_t>{32, 64, 96, 100}));
}

}  // namespace
}  // namespace engine
