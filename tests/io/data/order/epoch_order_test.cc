// Orders of an epoch: stratified mixes classes everywhere, and a broken order is found.
#include "io/data/order/epoch_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "io/base/files/io_error.h"
#include "tests/support/error_of.h"
#include "tests/support/expect_contains.h"

namespace io {
namespace {

// Classes 0, 1, 2 with 60, 30 and 10 samples, one class after another.
Dataset three_classes() {
  Dataset set;
  set.name = "three";
  set.set_shape({1, 1, 1});
  set.as<ClassLabels>().count = 3;
  for (const auto& [label, count] : {std::pair{0, 60}, std::pair{1, 30}, std::pair{2, 10}})
    for (int i = 0; i < count; ++i) set.as<ClassLabels>().ids.push_back(label);
  set.as<ImageSamples>().pixels.resize(100);
  return set;
}

std::vector<std::int64_t> epoch_of(const Dataset& set, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(set.size()));
  make_epoch_order("stratified", set)->fill(seed, epoch, order);
  return order;
}

TEST(Stratified, IsAPermutationThatDependsOnSeedAndEpoch) {
  const Dataset set = three_classes();
  std::vector<std::int64_t> order = epoch_of(set, 1, 0);
  EXPECT_EQ(order, epoch_of(set, 1, 0));
  EXPECT_NE(order, epoch_of(set, 1, 1));
  EXPECT_NE(order, epoch_of(set, 2, 0));
  std::ranges::sort(order);
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<std::int64_t>(i));
}

TEST(Stratified, EveryWindowHasTheMixOfTheWhole) {
  const Dataset set = three_classes();
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const std::vector<std::int64_t> order = epoch_of(set, 7, epoch);
    for (std::size_t first = 0; first < 100; first += 20) {
      std::array<int, 3> counts{};
      for (std::size_t i = first; i < first + 20; ++i)
        ++counts[static_cast<std::size_t>(
            set.as<ClassLabels>().ids[static_cast<std::size_t>(order[i])])];
      EXPECT_NEAR(counts[0], 12, 2);
      EXPECT_NEAR(counts[1], 6, 2);
      EXPECT_NEAR(counts[2], 2, 1);
    }
  }
}

TEST(Stratified, NeedsClasses) {
  const Dataset text{.name = "text", .samples = TokenSamples{}, .labels = NextTokens{}};
  EXPECT_THROW(make_epoch_order("stratified", text), ConfigError);
  const Dataset prices{.name = "prices",
                       .samples = FeatureSamples{.extents = {1, 1, 1}, .values = {1, 2}},
                       .labels = TargetValues{.scale = {}, .values = {3, 4}}};
  EXPECT_THROW(make_epoch_order("stratified", prices), ConfigError);
  Dataset wrong = three_classes();
  wrong.as<ClassLabels>().ids[5] = 3;
  EXPECT_THROW(make_epoch_order("stratified", wrong), DataError);
  EXPECT_EQ(make_epoch_order("shuffle", text), nullptr);
}

struct Repeating final : EpochOrder {
  void fill(std::uint64_t, std::int64_t epoch, std::span<std::int64_t> order) const override {
    std::iota(order.begin(), order.end(), std::int64_t{0});
    if (epoch == 1) order[3] = 2;
  }
};

TEST(CheckPartition, FindsWhatIsTakenTwiceAndWhatIsLost) {
  const Repeating repeating;
  const SamplerOptions options{.size = 10, .global_batch = 4, .world_size = 3, .order = &repeating};
  EXPECT_VALUES(test_support::error_of<DataError>([&] { check_partition(options); }),
                "sample 2 2 times epoch 1 3 ranks");
}

TEST(CheckPartition, AcceptsEveryWayOfSharing) {
  const Dataset set = three_classes();
  const auto stratified = make_epoch_order("stratified", set);
  for (const EpochOrder* order :
       {static_cast<const EpochOrder*>(nullptr), static_cast<const EpochOrder*>(stratified.get())})
    for (const Uneven uneven : {Uneven::kJoin, Uneven::kDrop, Uneven::kPad})
      for (const Shard shard : {Shard::kContiguous, Shard::kStrided, Shard::kFile}) {
        if (shard == Shard::kFile && order != nullptr) continue;
        EXPECT_NO_THROW(check_partition({.size = 100,
                                         .global_batch = 12,
                                         .world_size = 3,
                                         .seed = 4,
                                         .order = order,
                                         .uneven = uneven,
                                         .shard = shard}));
      }
  const SamplerOptions file{
      .size = 100, .global_batch = 12, .order = stratified.get(), .shard = Shard::kFile};
  EXPECT_THROW(Sampler{file}, ConfigError);
}

}  // namespace
}  // namespace io
