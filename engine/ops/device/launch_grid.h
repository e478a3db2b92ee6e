// Computes the number of blocks of a launch.
#pragma once

#include <cstdint>

namespace engine::ops::cuda {

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

constexpr std::int64_t divide_up(std::int64_t count, std::int64_t each) {
  return (count + each - 1) / each;
}

// Returns the number of blocks for a loop over `count` elements in which each thread processes
// every (grid * threads)-th: enough to fill any device, no more than needed, at least one.
inline unsigned loop_blocks(std::int64_t count, int threads) {
  const std::int64_t needed = divide_up(count, threads);
  constexpr std::int64_t kMost = std::int64_t{132} * 16;
  return static_cast<unsigned>(needed < 1 ? 1 : needed < kMost ? needed : kMost);
}

}  // namespace engine::ops::cuda
