// Defines the order in which squares of gradients are summed. Contract: optimizer_step.h.
#pragma once

#include <cstdint>

namespace engine::ops::reference {

// Sums squares in blocks of `kSumBlock`; each block has sixteen interleaved sums, added pairwise at
// its end. The order is thus the same for every vector width; products of two f32 are exact in f64,
// so that f32 gives the same bits everywhere.
inline constexpr std::int64_t kSumBlock = 4096;
inline constexpr int kSumLanes = 16;

template <class T>
double sum_of_squares_block(const T* values, std::int64_t count) {
  double lanes[kSumLanes] = {};
  std::int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    for (int lane = 0; lane < kSumLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (int lane = 0; i + lane < count; ++lane) {
    const double value = values[i + lane];
    lanes[lane] += value * value;
  }
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace engine::ops::reference
