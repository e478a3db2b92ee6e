// Partition, balance and order of the sampler, over many sizes, batches and worlds.
#include "io/data/order/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "io/base/files/io_error.h"
#include "io/base/numbers/split_mix.h"

namespace io {
namespace {

struct World {
  std::int64_t size, batch;
  int ranks;
};

std::vector<World> worlds() {
  std::vector<World> all;
  for (const std::int64_t size : {1, 2, 7, 16, 97, 1000}) {
    for (const std::int64_t batch : {1, 2, 3, 8, 10, 64, 97, 1000, 5000}) {
      for (const int ranks : {1, 2, 3, 4, 7, 16}) all.push_back({size, batch, ranks});
    }
  }
  return all;
}

std::string describe(const World& w) {
  return std::to_string(w.size) + " samples, batch " + std::to_string(w.batch) + ", " +
         std::to_string(w.ranks) + " ranks";
}

std::vector<Sampler> samplers(const World& world, std::uint64_t seed = 3, bool shuffle = true) {
  std::vector<Sampler> all;
  for (int rank = 0; rank < world.ranks; ++rank) {
    all.emplace_back(SamplerOptions{world.size, world.batch, rank, world.ranks, seed, shuffle});
  }
  return all;
}

// The rest of an epoch in steps of another batch: each sample once, in the same order.
TEST(Sampler, GoesOnWithAnotherBatchInTheMiddleOfAnEpoch) {
  for (const World& world : worlds()) {
    for (const std::int64_t done : {std::int64_t{0}, world.size / 3, world.size - 1}) {
      SCOPED_TRACE(describe(world) + ", " + std::to_string(done) + " done");
      const std::vector<Sampler> ranks = samplers(world);
      const std::int64_t batch = std::min(world.batch, world.size);
      std::vector<std::int64_t> joined;
      std::int64_t taken = done % batch;
      for (std::int64_t step = done / batch; step < ranks[0].steps_per_epoch(); ++step) {
        const std::size_t before = joined.size();
        for (int rank = 0; rank < world.ranks; ++rank) {
          const auto part = ranks[static_cast<std::size_t>(rank)].indices(step, taken);
          ASSERT_EQ(static_cast<std::int64_t>(part.size()),
                    ranks[0].local_count(step, rank, taken));
          joined.insert(joined.end(), part.begin(), part.end());
        }
        ASSERT_EQ(static_cast<std::int64_t>(joined.size() - before),
                  ranks[0].global_count(step, taken));
        taken = 0;
      }
      ASSERT_EQ(joined, std::vector(ranks[0].order().begin() + done, ranks[0].order().end()));
    }
  }
}

TEST(Sampler, EachStepIsCutIntoSlicesInRankOrder) {
  for (const World& world : worlds()) {
    SCOPED_TRACE(describe(world));
    const std::vector<Sampler> ranks = samplers(world);
    ASSERT_EQ(ranks[0].steps_per_epoch(), (world.size + world.batch - 1) / world.batch);
    std::vector<std::int64_t> joined;
    for (std::int64_t step = 0; step < ranks[0].steps_per_epoch(); ++step) {
      const std::size_t before = joined.size();
      for (const Sampler& sampler : ranks) {
        const auto part = sampler.indices(step);
        ASSERT_EQ(static_cast<std::int64_t>(part.size()), sampler.local_count(step));
        joined.insert(joined.end(), part.begin(), part.end());
      }
      ASSERT_EQ(static_cast<std::int64_t>(joined.size() - before), ranks[0].global_count(step));
    }
    // Joined in step and rank order they are the epoch's permutation: nothing twice, nothing left
    // out, no gap.
    ASSERT_EQ(joined, std::vector(ranks[0].order().begin(), ranks[0].order().end()));
    std::sort(joined.begin(), joined.end());
    for (std::size_t i = 0; i < joined.size(); ++i)
      ASSERT_EQ(joined[i], static_cast<std::int64_t>(i));
  }
}

TEST(Sampler, RanksAreBalancedInEachStepAndOverTheEpoch) {
  for (const World& world : worlds()) {
    SCOPED_TRACE(describe(world));
    const std::vector<Sampler> ranks = samplers(world);
    std::vector<std::int64_t> totals(ranks.size()), highest(ranks.size());
    for (std::int64_t step = 0; step < ranks[0].steps_per_epoch(); ++step) {
      std::vector<std::int64_t> counts;
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        counts.push_back(ranks[r].local_count(step));
        totals[r] += counts[r];
        highest[r] = std::max(highest[r], counts[r]);
      }
      const auto [low, high] = std::minmax_element(counts.begin(), counts.end());
      ASSERT_LE(*high - *low, 1);
      if (world.batch % world.ranks == 0 && ranks[0].global_count(step) == world.batch) {
        ASSERT_EQ(*high, *low);
      }
    }
    const auto [low, high] = std::minmax_element(totals.begin(), totals.end());
    ASSERT_LE(*high - *low, 1);
    for (std::size_t r = 0; r < ranks.size(); ++r)
      ASSERT_EQ(ranks[r].max_local_count(), highest[r]);
  }
}

TEST(Sampler, OrderDependsOnSeedAndEpochOnly) {
  const auto order = [](const Sampler& sampler) {
    return std::vector(sampler.order().begin(), sampler.order().end());
  };
  Sampler one(SamplerOptions{500, 10, 0, 1, 42, true}),
      many(SamplerOptions{500, 64, 2, 5, 42, true});
  many.set_epoch(9);  // where one was before does not matter
  std::vector<std::vector<std::int64_t>> seen;
  for (const int epoch : {0, 1, 7}) {
    one.set_epoch(epoch);
    many.set_epoch(epoch);
    EXPECT_EQ(order(one), order(many));
    EXPECT_EQ(std::find(seen.begin(), seen.end(), order(one)), seen.end());
    seen.push_back(order(one));
  }
  Sampler other(SamplerOptions{500, 10, 0, 1, 43, true});
  other.set_epoch(7);
  EXPECT_NE(order(other), seen.back());
}

// Resuming in the middle of an epoch needs the order of the program that wrote the checkpoint.
TEST(Sampler, TheOrderIsKnown) {
  const Sampler sampler(SamplerOptions{10, 10, 0, 1, 1, true});
  EXPECT_EQ(std::vector(sampler.order().begin(), sampler.order().end()),
            (std::vector<std::int64_t>{5, 2, 1, 0, 7, 9, 4, 6, 3, 8}));
}

TEST(Sampler, WithoutShufflingTheOrderIsThatOfTheFile) {
  Sampler sampler(SamplerOptions{10, 4, 1, 2, 42, false});
  sampler.set_epoch(3);
  EXPECT_EQ(sampler.indices(0)[0], 2);
  EXPECT_EQ(sampler.indices(1)[1], 7);
  EXPECT_EQ(sampler.indices(2)[0], 9);
}

// Each of the 24 orders of four samples should come up once in 24 epochs: chi-square with 23
// degrees of freedom, of which 0.1 % exceed 49.7.
TEST(Sampler, AllPermutationsAreEquallyLikely) {
  Sampler sampler(SamplerOptions{4, 4, 0, 1, 7, true});
  std::vector<double> counts(256);
  constexpr int kEpochs = 24'000;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    sampler.set_epoch(epoch);
    const auto order = sampler.order();
    counts[static_cast<std::size_t>(order[0] * 64 + order[1] * 16 + order[2] * 4 + order[3])] += 1;
  }
  double chi_square = 0;
  int seen = 0;
  for (const double count : counts) {
    if (count == 0) continue;
    ++seen;
    chi_square += (count - kEpochs / 24.0) * (count - kEpochs / 24.0) / (kEpochs / 24.0);
  }
  EXPECT_EQ(seen, 24);
  EXPECT_LT(chi_square, 49.7);
}

std::vector<Sampler> world_of(SamplerOptions options) {
  std::vector<Sampler> ranks;
  for (options.rank = 0; options.rank < options.world_size; ++options.rank)
    ranks.emplace_back(options);
  return ranks;
}

std::vector<std::int64_t> all_of(const Sampler& sampler) {
  std::vector<std::int64_t> taken;
  for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    const auto part = sampler.indices(step);
    EXPECT_LE(static_cast<std::int64_t>(part.size()), sampler.max_local_count());
    taken.insert(taken.end(), part.begin(), part.end());
  }
  return taken;
}

// As torch.utils.data.DistributedSampler(range(10), num_replicas=4, rank=r, shuffle=False) deals
// out: 12 places, 0 and 1 twice.
TEST(Sampler, PaddedAndStridedIsPyTorchsDistributedSampler) {
  const auto ranks = world_of({.size = 10,
                               .global_batch = 8,
                               .world_size = 4,
                               .shuffle = false,
                               .uneven = Uneven::kPad,
                               .shard = Shard::kStrided});
  EXPECT_EQ(all_of(ranks[0]), (std::vector<std::int64_t>{0, 4, 8}));
  EXPECT_EQ(all_of(ranks[1]), (std::vector<std::int64_t>{1, 5, 9}));
  EXPECT_EQ(all_of(ranks[2]), (std::vector<std::int64_t>{2, 6, 0}));
  EXPECT_EQ(all_of(ranks[3]), (std::vector<std::int64_t>{3, 7, 1}));
  EXPECT_EQ(ranks[0].steps_per_epoch(), 2);
  EXPECT_EQ(ranks[0].global_count(1), 4);
}

TEST(Sampler, PaddingRepeatsAsOftenAsItTakes) {
  const auto ranks = world_of(
      {.size = 2, .global_batch = 7, .world_size = 7, .shuffle = false, .uneven = Uneven::kPad});
  for (int r = 0; r < 7; ++r)
    EXPECT_EQ(all_of(ranks[static_cast<std::size_t>(r)]), (std::vector<std::int64_t>{r % 2}));
}

TEST(Sampler, DropLeavesEqualSharesAndNoSampleTwice) {
  const auto ranks = world_of(
      {.size = 103, .global_batch = 20, .world_size = 4, .seed = 5, .uneven = Uneven::kDrop});
  std::vector<std::int64_t> joined;
  for (const Sampler& sampler : ranks) {
    EXPECT_EQ(sampler.steps_per_epoch(), 5);
    const auto own = all_of(sampler);
    EXPECT_EQ(own.size(), 25u);
    joined.insert(joined.end(), own.begin(), own.end());
  }
  std::sort(joined.begin(), joined.end());
  EXPECT_EQ(std::adjacent_find(joined.begin(), joined.end()), joined.end());
}

TEST(Sampler, StridedTakesTheSameStepsInTurn) {
  for (World world : worlds()) {
    SCOPED_TRACE(describe(world));
    const SamplerOptions options{.size = world.size,
                                 .global_batch = world.batch,
                                 .world_size = world.ranks,
                                 .seed = 3,
                                 .shard = Shard::kStrided};
    const auto ranks = world_of(options);
    for (std::int64_t step = 0; step < ranks[0].steps_per_epoch(); ++step) {
      std::vector<std::int64_t> joined;
      for (const Sampler& sampler : ranks) {
        ASSERT_EQ(static_cast<std::int64_t>(sampler.indices(step).size()),
                  sampler.local_count(step));
        joined.insert(joined.end(), sampler.indices(step).begin(), sampler.indices(step).end());
      }
      SamplerOptions one = options;
      one.world_size = 1;
      const Sampler whole(one);
      std::vector<std::int64_t> expected(whole.indices(step).begin(), whole.indices(step).end());
      std::sort(joined.begin(), joined.end());
      std::sort(expected.begin(), expected.end());
      ASSERT_EQ(joined, expected);
    }
  }
}

TEST(Sampler, PartsAreTheSameForEveryWorld) {
  // Of 19 samples the fourth part has two, of the 18 of the last step three.
  for (const std::int64_t size : {5, 16, 37, 97})
    for (const std::int64_t batch : {3, 8, 19, 20}) {
      const Sampler one({.size = size, .global_batch = batch, .seed = 3, .parts = 8});
      for (int world = 1; world <= 8; ++world) {
        const auto ranks = world_of(
            {.size = size, .global_batch = batch, .world_size = world, .seed = 3, .parts = 8});
        for (std::int64_t step = 0; step < one.steps_per_epoch(); ++step) {
          const std::int64_t n = one.global_count(step);
          std::vector<std::int64_t> joined;
          for (int r = 0; r < world; ++r) {
            const Sampler& sampler = ranks[static_cast<std::size_t>(r)];
            ASSERT_EQ(static_cast<std::int64_t>(joined.size()), n * (8 * r / world) / 8);
            ASSERT_LE(sampler.local_count(step), sampler.max_local_count());
            joined.insert(joined.end(), sampler.indices(step).begin(), sampler.indices(step).end());
            for (int k = 0; k < 8; ++k)
              ASSERT_LE(n * (k + 1) / 8 - n * k / 8, sampler.max_part_count());
          }
          ASSERT_EQ(joined, std::vector(one.indices(step).begin(), one.indices(step).end()));
        }
      }
    }
}

TEST(Sampler, RefusesWhatDoesNotShareOut) {
  EXPECT_THROW(Sampler(SamplerOptions{
                   .size = 10, .global_batch = 6, .world_size = 4, .uneven = Uneven::kPad}),
               ConfigError);
  EXPECT_THROW(Sampler(SamplerOptions{
                   .size = 10, .global_batch = 6, .world_size = 4, .uneven = Uneven::kDrop}),
               ConfigError);
  EXPECT_THROW(Sampler(SamplerOptions{
                   .size = 10, .global_batch = 12, .world_size = 4, .uneven = Uneven::kDrop}),
               ConfigError);
  EXPECT_THROW(Sampler(SamplerOptions{.size = 10, .global_batch = 8, .world_size = 9, .parts = 8}),
               ConfigError);
  EXPECT_EQ(
      Sampler({.size = 10, .global_batch = 8, .world_size = 3, .uneven = Uneven::kDrop, .parts = 8})
          .steps_per_epoch(),
      1)
      << "what is dropped depends on no world";
}

TEST(Sampler, RefusesWhatCannotBeSampled) {
  EXPECT_THROW(Sampler(SamplerOptions{0, 1, 0, 1}), ConfigError);
  EXPECT_THROW(Sampler(SamplerOptions{10, 0, 0, 1}), ConfigError);
  EXPECT_THROW(Sampler(SamplerOptions{10, 1, 2, 2}), ConfigError);
  EXPECT_THROW(Sampler(SamplerOptions{10, 1, 0, 0}), ConfigError);
  const Sampler sampler(SamplerOptions{10, 4, 0, 1});
  EXPECT_THROW((void)sampler.indices(3), std::out_of_range);
  EXPECT_THROW((void)sampler.indices(-1), std::out_of_range);
}

// First outputs for state 0, as published with the generator.
TEST(SplitMix, MixesAsPublished) {
  EXPECT_EQ(mix_bits(0x9E3779B97F4A7C15), 0xE220A8397B1DCDAFu);
  EXPECT_EQ(mix_bits(2 * 0x9E3779B97F4A7C15), 0x6E789E6AA1B965F4u);
}

TEST(SplitMix, BoundedDrawsStayInBoundsAndReachAll) {
  SplitMix random(1, 2, 3);
  std::vector<int> counts(3);
  for (int i = 0; i < 3000; ++i) ++counts.at(random.below(3));
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
  EXPECT_EQ(random.below(1), 0u);
}

TEST(FileShard, PartsOfOneToNineRanksAreTheFile) {
  for (const std::int64_t size : {1, 5, 8, 9, 150, 344, 1001}) {
    for (int world = 1; world <= 9; ++world) {
      std::int64_t end = 0;
      for (int rank = 0; rank < world; ++rank) {
        const FileShard part = file_shard(size, rank, world);
        EXPECT_EQ(part.start, end);
        EXPECT_GE(part.end - part.start, size / world);
        EXPECT_LE(part.end - part.start, size / world + 1);
        end = part.end;
      }
      EXPECT_EQ(end, size);
    }
  }
  EXPECT_EQ(file_shard(344, 1, 3).start, 114);  // int(1 * 344 / 3)
  EXPECT_EQ(file_shard(344, 1, 3).end, 229);    // int(2 * 344 / 3)
}

TEST(FileShard, EveryEpochEachRankTakesExactlyItsPart) {
  for (World world : worlds()) {
    for (const bool shuffle : {true, false}) {
      SCOPED_TRACE(describe(world));
      std::vector<std::int64_t> steps(static_cast<std::size_t>((world.size - 1) / world.batch + 1));
      for (int rank = 0; rank < world.ranks; ++rank) {
        Sampler sampler({.size = world.size,
                         .global_batch = world.batch,
                         .rank = rank,
                         .world_size = world.ranks,
                         .seed = 3,
                         .shuffle = shuffle,
                         .shard = Shard::kFile});
        ASSERT_EQ(sampler.steps_per_epoch(), static_cast<std::int64_t>(steps.size()));
        sampler.set_epoch(1);
        std::vector<std::int64_t> seen;
        for (std::size_t step = 0; step < steps.size(); ++step) {
          const auto ids = sampler.indices(static_cast<std::int64_t>(step));
          seen.insert(seen.end(), ids.begin(), ids.end());
          steps[step] += sampler.local_count(static_cast<std::int64_t>(step));
          ASSERT_LE(static_cast<std::int64_t>(ids.size()), sampler.max_local_count());
        }
        if (shuffle) std::sort(seen.begin(), seen.end());
        const FileShard part = file_shard(world.size, rank, world.ranks);
        ASSERT_EQ(static_cast<std::int64_t>(seen.size()), part.end - part.start);
        for (std::size_t i = 0; i < seen.size(); ++i)
          ASSERT_EQ(seen[i], part.start + static_cast<std::int64_t>(i));
      }
      for (std::size_t step = 0; step < steps.size(); ++step)
        ASSERT_EQ(steps[step], std::min(world.batch, world.size - static_cast<std::int64_t>(step) *
                                                                      world.batch));
    }
  }
}

TEST(FileShard, IsShuffledByEpochAndRankAndPaddedFromItsOwnFront) {
  const auto all = [](int rank, std::int64_t epoch, Uneven uneven) {
    Sampler sampler({.size = 50,
                     .global_batch = 8,
                     .rank = rank,
                     .world_size = 4,
                     .seed = 1,
                     .uneven = uneven,
                     .shard = Shard::kFile});
    sampler.set_epoch(epoch);
    std::vector<std::int64_t> ids;
    for (std::int64_t step = 0; step < sampler.steps_per_epoch(); ++step)
      for (const std::int64_t id : sampler.indices(step)) ids.push_back(id);
    return ids;
  };
  EXPECT_NE(all(1, 0, Uneven::kJoin), all(1, 1, Uneven::kJoin));
  std::vector<std::int64_t> shifted =
      all(0, 0, Uneven::kJoin);  // parts 0 and 2 have 12 samples: 0.. and 25..
  for (std::int64_t& id : shifted) id += 25;
  EXPECT_NE(shifted, all(2, 0, Uneven::kJoin));
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<std::int64_t> padded = all(rank, 0, Uneven::kPad),
                                    joined = all(rank, 0, Uneven::kJoin);
    ASSERT_EQ(padded.size(), 13u);
    EXPECT_TRUE(std::equal(joined.begin(), joined.end(), padded.begin()));
    EXPECT_EQ(padded[12], joined.size() == 12 ? joined[0] : joined[12]);
    EXPECT_EQ(all(rank, 0, Uneven::kDrop).size(), 12u);
  }
  EXPECT_THROW(Sampler({.size = 3,
                        .global_batch = 4,
                        .world_size = 4,
                        .uneven = Uneven::kPad,
                        .shard = Shard::kFile}),
               ConfigError);
}

}  // namespace
}  // namespace io
