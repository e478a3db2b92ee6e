// Folds of several parts.
#include "backends/reduction.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

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

}  // namespace
