// Parameters cut into fragments of whole layers.
#include "engine/averaging/policies/fragments.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace engine {
namespace {

FlatBuffer buffer_of(const std::vector<std::pair<std::string, std::int64_t>>& tensors) {
  std::vector<NamedLayout> layouts;
  layouts.reserve(tensors.size());
  for (const auto& [name, count] : tensors)
    layouts.push_back({name, TensorLayout::plain({count}), DType::kF32});
  return FlatBuffer(DType::kF32, layouts);
}

std::vector<std::int64_t> counts_of(const std::vector<Elements>& fragments) {
  std::vector<std::int64_t> counts;
  std::int64_t end = 0;
  for (const Elements& fragment : fragments) {
    EXPECT_EQ(fragment.first, end);
    counts.push_back(fragment.count);
    end += fragment.count;
  }
  return counts;
}

using Counts = std::vector<std::int64_t>;

TEST(Fragments, LayersAreTensorsOfOnePrefixWithTheGaps) {
  const FlatBuffer buffer =
      buffer_of({{"fc.weight", 32}, {"fc.bias", 3}, {"a.b.weight", 20}, {"scale", 16}});
  EXPECT_EQ(counts_of(layers_of(buffer)), (Counts{48, 32, 16}));
}

TEST(Fragments, TheLargestIsAsSmallAsPossible) {
  const FlatBuffer buffer =
      buffer_of({{"a.w", 32}, {"b.w", 32}, {"c.w", 96}, {"d.w", 16}, {"e.w", 48}});
  EXPECT_EQ(counts_of(divide_layers(buffer, 1)), (Counts{224}));
  EXPECT_EQ(std::ranges::max(counts_of(divide_layers(buffer, 2))), 160);
  EXPECT_EQ(counts_of(divide_layers(buffer, 3)), (Counts{64, 96, 64}));
  EXPECT_EQ(counts_of(divide_layers(buffer, 5)), (Counts{32, 32, 96, 16, 48}));
  EXPECT_THROW(divide_layers(buffer, 6), Error);
  EXPECT_THROW(divide_layers(buffer, 0), Error);
}

TEST(Fragments, TheDefaultIsTheMostThatAreAtMostTwiceTheMean) {
  const FlatBuffer even = buffer_of({{"a", 16}, {"b", 16}, {"c", 16}, {"d", 16}});
  EXPECT_EQ(choose_fragments(even, 100), 4);
  EXPECT_EQ(choose_fragments(even, 3), 3);
  EXPECT_EQ(choose_fragments(even, 1), 1);
  // Five fragments would have a mean of 44.8 and a largest one of 96.
  const FlatBuffer buffer = buffer_of({{"a", 32}, {"b", 32}, {"c", 96}, {"d", 16}, {"e", 48}});
  EXPECT_EQ(choose_fragments(buffer, 100), 4);
  const FlatBuffer one_large = buffer_of({{"a", 16}, {"b", 16}, {"c", 1600}});
  EXPECT_EQ(choose_fragments(one_large, 100), 2);
}

}  // namespace
}  // namespace engine
