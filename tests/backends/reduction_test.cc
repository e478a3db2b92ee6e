// Folds of several parts.
#include "backends/reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "backends/backend_error.h"

namespace {

using backends::ReduceOp;
using base::DType;

TEST(Reduction, PartsFoldFromTheFirstToTheLastInPlaceToo) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 1e3f);
  for (const int part_count : {1, 2, 3, 5}) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{33}, std::size_t{5000}}) {
      for (int out = 0; out <= part_count;
           ++out) {  // into one of the parts, or into memory of its own
        std::vector<std::vector<float>> values(static_cast<std::size_t>(part_count) + 1,
                                               std::vector<float>(count));
        for (auto& v : values)
          for (float& x : v) x = normal(random);
        std::vector<float> expected = values[0];
        for (int p = 1; p < part_count; ++p)
          for (std::size_t i = 0; i < count; ++i)
            expected[i] += values[static_cast<std::size_t>(p)][i];
        std::vector<const void*> parts;
        for (int p = 0; p < part_count; ++p)
          parts.push_back(values[static_cast<std::size_t>(p)].data());
        float* into = values[static_cast<std::size_t>(out)].data();
        backends::reduce_parts(into, parts.data(), part_count, count, DType::kF32, ReduceOp::kSum);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), into))
            << part_count << " parts of " << count << " into " << out;
      }
    }
  }
}

// Ranks that fold the same numbers, each into its own, must get the same bits.
TEST(Reduction, ManyThatAreNoNumbersGiveTheSameBitsWhicheverPartTakesTheResult) {
  constexpr std::size_t kCount = 5003;  // strips, vectors and a rest
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    for (const int part_count : {2, 3, 5}) {
      std::vector<std::vector<std::uint32_t>> results;
      for (int out = 0; out <= part_count; ++out) {
        std::vector<std::vector<std::uint32_t>> values;
        for (std::uint32_t p = 0; p <= static_cast<std::uint32_t>(part_count); ++p)
          values.emplace_back(kCount, 0x7fc00000u | (p % 2) << 31 | (p + 1));  // NaN, all different
        std::vector<const void*> parts;
        for (int p = 0; p < part_count; ++p)
          parts.push_back(values[static_cast<std::size_t>(p)].data());
        std::vector<std::uint32_t>& into = values[static_cast<std::size_t>(out)];
        backends::reduce_parts(into.data(), parts.data(), part_count, kCount, DType::kF32, op);
        results.push_back(into);
        EXPECT_EQ(results.back(), results.front()) << part_count << " parts into " << out;
      }
    }
  }
}

// The slices follow each other from 0 to the count, and are those of the weights but for rounding.
TEST(SumSlices, CoverAllElementsByTheirWeights) {
  const std::vector<std::vector<std::uint32_t>> cases{
      {}, {1, 1, 1, 1}, {0, 0, 7, 0}, {65536, 0, 1, 3}, {10, 20, 30, 40}};
  for (const std::vector<std::uint32_t>& weights : cases) {
    const backends::SumSlices slices(4, weights);
    EXPECT_EQ(slices.are_equal(), weights.empty());
    std::uint64_t total = 0;
    for (const std::uint32_t weight : weights) total += weight;
    for (const std::size_t count :
         std::vector<std::size_t>{0, 1, 5, 65537, 1'000'003, 1ull << 50}) {
      std::size_t end = 0;
      for (int rank = 0; rank < 4; ++rank) {
        const backends::ElementRange slice = slices.of(count, rank);
        EXPECT_EQ(slice.begin, end);
        end = slice.end;
        const double share =
            weights.empty() ? 0.25
                            : static_cast<double>(weights.at(rank)) / static_cast<double>(total);
        EXPECT_NEAR(static_cast<double>(slice.count()), share * static_cast<double>(count),
                    1 + static_cast<double>(count) / 65536)
            << "rank " << rank << " of " << count;
      }
      EXPECT_EQ(end, count);
    }
  }
}

TEST(SumSlices, NoSliceOfABlockIsLongerThanAPiece) {
  for (const std::vector<std::uint32_t>& weights :
       std::vector<std::vector<std::uint32_t>>{{}, {0, 0, 1}, {3, 1, 1}, {1, 65535, 3000}}) {
    const backends::SumSlices slices(3, weights);
    const std::size_t block = slices.count_for(1000);
    EXPECT_GE(block, 1000u);
    std::size_t longest = 0;
    for (int rank = 0; rank < 3; ++rank)
      longest = std::max(longest, slices.of(block, rank).count());
    EXPECT_LE(longest, 1001u);
    EXPECT_GE(longest, 999u);
  }
}

TEST(SumSlices, NeedAWeightOfEachRankAndAboveZero) {
  const std::vector<std::uint32_t> two{1, 2}, none{0, 0, 0};
  EXPECT_THROW(backends::SumSlices(3, two), backends::ConfigurationError);
  EXPECT_THROW(backends::SumSlices(3, none), backends::ConfigurationError);
}

}  // namespace
