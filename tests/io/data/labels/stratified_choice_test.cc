// --limit: which samples remain.
#include "io/data/labels/stratified_choice.h"

#include <gtest/gtest.h>

#include <numeric>

#include <algorithm>

#include "io/base/numbers/split_mix.h"
#include "io/data/dataset/dataset.h"

namespace io {
namespace {

std::vector<std::int32_t> sorted_labels(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int32_t> labels;
  for (std::size_t c = 0; c < sizes.size(); ++c)
    labels.insert(labels.end(), static_cast<std::size_t>(sizes[c]), static_cast<std::int32_t>(c));
  return labels;
}

std::vector<std::int64_t> counts(const std::vector<std::int64_t>& sizes, std::int64_t limit,
                                 std::uint64_t seed = 0) {
  const std::vector<std::int32_t> labels = sorted_labels(sizes);
  const std::vector<std::int64_t> chosen = stratified_positions(labels, limit, seed);
  EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
  EXPECT_EQ(std::adjacent_find(chosen.begin(), chosen.end()), chosen.end());
  std::vector<std::int64_t> found(sizes.size());
  for (const std::int64_t i : chosen)
    ++found[static_cast<std::size_t>(labels.at(static_cast<std::size_t>(i)))];
  return found;
}

using Counts = std::vector<std::int64_t>;

TEST(SampleLimit, ClassesKeepTheirShares) {
  EXPECT_EQ(counts({50, 30, 20}, 10), (Counts{5, 3, 2}));
  EXPECT_EQ(counts({10, 10, 10}, 10), (Counts{4, 3, 3}));
  EXPECT_EQ(counts({500, 499}, 2), (Counts{1, 1}));
  EXPECT_EQ(counts({7, 5}, 12), (Counts{7, 5}));
  EXPECT_EQ(counts({5, 0, 5}, 4), (Counts{2, 0, 2}));
}

TEST(SampleLimit, EveryClassHasOneWhereTheLimitAllowsIt) {
  EXPECT_EQ(counts({1000, 1, 1}, 3), (Counts{1, 1, 1}));
  EXPECT_EQ(counts({1000, 1, 1}, 10), (Counts{8, 1, 1}));
  EXPECT_EQ(counts({600, 600, 1, 1}, 6), (Counts{2, 2, 1, 1}));
  // Fewer than classes: the largest.
  EXPECT_EQ(counts({1, 5, 4}, 2), (Counts{0, 1, 1}));
}

TEST(SampleLimit, AnySizesAndLimitsAddUp) {
  SplitMix random(7, 0);
  for (int round = 0; round < 300; ++round) {
    Counts sizes;
    std::int64_t total = 0, classes = 0;
    for (std::uint32_t c = 0; c < 1 + random.below(12); ++c) {
      sizes.push_back(random.below(2) == 0 ? random.below(3) : random.below(400));
      total += sizes.back();
      classes += sizes.back() > 0;
    }
    if (total == 0) continue;
    const std::int64_t limit = 1 + random.below(static_cast<std::uint32_t>(total));
    const Counts found = counts(sizes, limit);
    std::int64_t sum = 0;
    for (std::size_t c = 0; c < sizes.size(); ++c) {
      sum += found[c];
      EXPECT_LE(found[c], sizes[c]);
      EXPECT_TRUE(found[c] >= 1 || sizes[c] == 0 || limit < classes);
    }
    EXPECT_EQ(sum, limit);
  }
}

TEST(SampleLimit, SeedAndDataDecide) {
  const std::vector<std::int32_t> labels = sorted_labels({40, 40});
  EXPECT_EQ(stratified_positions(labels, 8, 3), stratified_positions(labels, 8, 3));
  EXPECT_NE(stratified_positions(labels, 8, 3), stratified_positions(labels, 8, 4));
}

TEST(SampleLimit, EachSampleKeepsItsLabelAndItsNumbers) {
  Dataset set;
  set.samples = FeatureSamples{};
  set.set_shape({1, 1, 2});
  for (int i = 0; i < 60; ++i) {
    set.as<ClassLabels>().ids.push_back(i / 20);
    set.as<FeatureSamples>().values.insert(set.as<FeatureSamples>().values.end(),
                                           {static_cast<float>(i), static_cast<float>(i / 20)});
  }
  set.limit(9, 1);
  EXPECT_EQ(set.size(), 9);
  ASSERT_EQ(set.as<FeatureSamples>().values.size(), 18u);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(set.as<ClassLabels>().ids[i], static_cast<std::int32_t>(i / 3));
    EXPECT_EQ(set.as<FeatureSamples>().values[2 * i + 1],
              static_cast<float>(set.as<ClassLabels>().ids[i]));
  }
}

TEST(SampleLimit, OfTokensTheFirstWindowsRemain) {
  Dataset set;
  set.samples = TokenSamples{.context = 4, .stride = 4};
  set.labels = NextTokens{};
  std::vector<std::int32_t> ids(41);
  std::iota(ids.begin(), ids.end(), 0);
  set.as<TokenSamples>().tokens = ids;
  set.limit(3, 1);
  EXPECT_EQ(set.size(), 3);
  EXPECT_EQ(set.as<TokenSamples>().tokens.all().back(), 12);
}

}  // namespace
}  // namespace io
