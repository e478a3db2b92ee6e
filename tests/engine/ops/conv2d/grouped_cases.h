// The convolutions of several groups that the tests of all devices compute.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/engine/ops/common/products.h"

namespace kernel_test {

// Convolutions of 2 to 45 groups: some are depthwise, some have several outputs for a channel, and
// some groups have fewer and some more channels than a vector.
inline std::vector<ConvProduct> grouped_cases() {
  const std::int64_t channels[][3] = {{2, 2, 2},    {3, 3, 3},   {8, 8, 8},   {17, 17, 17},
                                      {45, 45, 45}, {3, 9, 3},   {4, 8, 2},   {24, 24, 3},
                                      {34, 51, 17}, {18, 40, 2}, {40, 16, 8}, {6, 3, 3}},
                     maps[] = {1, 2, 3, 5, 7, 9, 14}, batches[] = {1, 3, 2};
  std::vector<ConvProduct> all;
  std::size_t turn = 0;
  for (const std::int64_t kernel : {1, 2, 3, 5, 7})
    for (const std::int64_t stride : {1, 2, 3})
      for (std::int64_t padding = 0; padding <= 3; ++padding)
        for (int variant = 0; variant < 4; ++variant, ++turn) {
          const auto& [in, out, groups] = channels[turn % 12];
          const ConvProduct c{batches[turn % 3],
                              {maps[turn % 7], maps[(turn * 3 + 2) % 7], in, out, kernel, kernel,
                               stride, padding, groups}};
          if (std::min(c.g.in_h, c.g.in_w) + 2 * padding >= kernel) all.push_back(c);
        }
  all.push_back({0, {5, 5, 6, 6, 3, 3, 1, 1, 6}});   // no images
  all.push_back({2, {9, 31, 8, 8, 3, 3, 1, 1, 8}});  // rows of several tiles
  for (const std::int64_t kernel : {3, 5, 7})        // depthwise, with tiles inside of the map
    for (const std::int64_t stride : {1, 2})
      all.push_back({1, {7, 35, 17, 17, kernel, kernel, stride, kernel / 2, 17}});
  all.push_back({2, {7, 6, 6, 6, 2, 5, 2, 1, 3}});  // kernels that are not square
  all.push_back({2, {7, 6, 9, 9, 5, 2, 1, 2, 9}});
  all.push_back({2, {4, 5, 6, 6, 3, 3, 9, 1, 6}});    // a stride beyond the map
  all.push_back({33, {4, 3, 5, 10, 3, 3, 1, 1, 5}});  // pieces of several images
  // Groups of 2, 4, 8, 12 and 32 channels: some fill a vector together, the last ones do not; rows
  // of one tile and of several.
  all.push_back({2, {6, 17, 16, 16, 3, 3, 1, 1, 4}});
  all.push_back({3, {7, 7, 40, 40, 3, 3, 1, 1, 5}});
  all.push_back({1, {9, 30, 24, 24, 3, 3, 2, 1, 3}});
  all.push_back({2, {5, 6, 64, 64, 3, 3, 1, 1, 2}});
  all.push_back({2, {4, 19, 36, 72, 5, 5, 1, 2, 3}});
  all.push_back({2, {4, 47, 10, 10, 3, 3, 3, 1, 5}});
  return all;
}

}  // namespace kernel_test
