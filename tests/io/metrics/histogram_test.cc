// Buckets that hold what they say.
#include "io/metrics/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace {

TEST(Histogram, EveryNumberIsInTheBucketBetweenItsLimits) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(0.1, 2);
  std::vector<double> values(1000);
  for (double& v : values) v = normal(random) * std::exp(normal(random));
  values.insert(values.end(), {0, -0.0, 1, -1, 1e-30, -1e-30, 0.5, 1e18, -1e18});
  const io::Histogram h = io::histogram_of(values);
  ASSERT_EQ(h.limits.size(), h.counts.size());
  EXPECT_TRUE(std::ranges::is_sorted(h.limits));
  EXPECT_EQ(std::ranges::adjacent_find(h.limits), h.limits.end());
  EXPECT_EQ(h.count, 1009);
  EXPECT_EQ(std::accumulate(h.counts.begin(), h.counts.end(), 0.0), 1009);
  EXPECT_EQ(h.min, -1e18);
  EXPECT_EQ(h.max, 1e18);
  // Against a count that looks at each bucket apart; its ends belong to the side away from zero.
  for (std::size_t i = 1; i + 1 < h.limits.size(); ++i) {
    const double low = h.limits[i - 1], high = h.limits[i];
    const auto inside = [&](double v) {
      if (std::abs(v) < std::ldexp(1, -40)) v = 0;
      return low < 0 && high <= 0 ? low < v && v <= high : low <= v && v < high;
    };
    if (low < 0 && high > 0) continue;
    EXPECT_EQ(h.counts[i], static_cast<double>(std::ranges::count_if(values, inside)))
        << low << " to " << high;
  }
}

TEST(Histogram, SumsAreThoseOfTheNumbers) {
  const std::vector<float> values{1, 2, 3, -4};
  const io::Histogram h = io::histogram_of(values);
  EXPECT_EQ(h.count, 4);
  EXPECT_EQ(h.sum, 2);
  EXPECT_EQ(h.sum_squares, 30);
  EXPECT_EQ(h.min, -4);
  EXPECT_EQ(h.max, 3);
  EXPECT_EQ(h.skipped, 0);
}

// TensorBoard wants the greatest number within the last bucket's limit or not far from it.
TEST(Histogram, TheOutermostBucketsTakeWhatIsBeyond) {
  const io::Histogram h = io::histogram_of(std::vector<double>{-1e30, 1e30, 1e300});
  EXPECT_EQ(h.counts.back(), 2);
  EXPECT_EQ(h.counts[1], 1);
  EXPECT_EQ(h.limits.back(), std::ldexp(1, 64));
}

TEST(Histogram, WhatIsNotFiniteIsLeftOut) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values{1, inf, -inf, std::nanf(""), 1};
  const io::Histogram h = io::histogram_of(values);
  EXPECT_EQ(h.count, 2);
  EXPECT_EQ(h.skipped, 3);
  EXPECT_EQ(h.sum, 2);
  EXPECT_EQ(h.counts.back(), 2);
  EXPECT_EQ(io::histogram_of(std::vector<float>{inf}).count, 0);
  EXPECT_TRUE(io::histogram_of(std::span<const float>()).limits.empty());
}

}  // namespace
