// Statistics of all replicas on a CUDA device against those of all rows at once.
#include "engine/ops/replicas/replica_moments.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

class ReplicaMomentsCuda : public CudaTest {};

using Rows = std::vector<std::vector<double>>;  // by channel

// Per channel the mean, then per channel the sum of squared differences from it; zeros without
// rows.
std::vector<double> moments_of(const Rows& rows) {
  std::vector<double> moments(2 * rows.size());
  for (std::size_t c = 0; c < rows.size(); ++c) {
    for (const double value : rows[c]) moments[c] += value / static_cast<double>(rows[c].size());
    for (const double value : rows[c])
      moments[rows.size() + c] += (value - moments[c]) * (value - moments[c]);
  }
  return moments;
}

void expect_all_rows(const std::vector<std::int64_t>& counts, std::size_t channels) {
  std::mt19937 generator(5);
  std::normal_distribution<double> normal(3, 2);
  const auto replicas = static_cast<std::int64_t>(counts.size()),
             values = static_cast<std::int64_t>(2 * channels);
  Rows all(channels);
  DeviceContext c(0);
  std::vector<double> gathered, sums;
  for (const std::int64_t count : counts) {
    Rows own(channels);
    for (std::size_t channel = 0; channel < channels; ++channel)
      for (std::int64_t i = 0; i < count; ++i) {
        own[channel].push_back(normal(generator));
        all[channel].push_back(own[channel].back());
      }
    const DeviceOperand<double> moments({values}, moments_of(own)),
        block({1 + values}, std::vector<double>(1 + 2 * channels));
    pack_moments(c.context, count, moments.view(), block.view());
    c.finish();
    for (const double value : block.values()) gathered.push_back(value);
    for (const double value : moments.values()) sums.push_back(value);
  }
  const DeviceOperand<double> blocks({replicas, 1 + values}, gathered),
      merged({values}, std::vector<double>(2 * channels)), sum_blocks({replicas, values}, sums),
      sum({values}, std::vector<double>(2 * channels));
  merge_moments(c.context, blocks.view(), merged.view());
  add_sums(c.context, sum_blocks.view(), sum.view());
  c.finish();
  const std::vector<double> expected = moments_of(all), found = merged.values(),
                            found_sum = sum.values();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-12 * (1 + expected[i])) << i;
    double total = 0;
    for (std::size_t r = 0; r < counts.size(); ++r) total += sums[r * expected.size() + i];
    EXPECT_NEAR(found_sum[i], total, 1e-12 * (1 + total)) << i;
  }
}

TEST_F(ReplicaMomentsCuda, AreThoseOfAllRows) {
  expect_all_rows({4}, 3);
  expect_all_rows({4, 9}, 5);
  expect_all_rows({7, 1, 5, 2, 8}, 300);
}

TEST_F(ReplicaMomentsCuda, ReplicasWithoutRowsChangeNothing) {
  expect_all_rows({0, 5}, 2);
  expect_all_rows({0, 0, 6, 0, 3, 0}, 4);
  expect_all_rows({0, 0}, 4);
}

}  // namespace
}  // namespace engine::ops
