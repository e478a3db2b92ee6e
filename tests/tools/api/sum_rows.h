// Rows of numbers that a small model can tell apart, for tests of the interface.
#pragma once

#include <cstdint>
#include <random>

#include "engine/training.h"

namespace api_test {

// Rows of two numbers; the class says whether their sum is above 0.
inline engine::api::Samples rows(std::uint64_t seed, int count) {
  engine::api::Samples samples{.shape = {1, 1, 2}, .classes = 2};
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> number(-1, 1);
  for (int i = 0; i < count; ++i) {
    const float x = number(random), y = number(random);
    samples.values.insert(samples.values.end(), {x, y});
    samples.labels.push_back(x + y > 0 ? 1 : 0);
  }
  return samples;
}

}  // namespace api_test
