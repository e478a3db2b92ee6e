// What the tests of kernels on activations stored in bf16 share. A call is made twice on the same
// numbers, which bf16 can hold: with activations stored as floats and as halves. What the second
// stores must be what the first does, rounded once.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "tests/engine/ops/common/bf16_test_support.h"

namespace kernel_test {

using engine::bf16;

// Random numbers that bf16 can hold, as floats or as halves.
template <class T>
Operand<T> stored_operand(const Shape& shape, std::uint32_t seed) {
  Operand<T> operand(shape, T{});
  const Operand<float> values = random_operand(shape, seed);
  for (std::size_t i = 0; i < operand.values.size(); ++i)
    operand.values[i] =
        engine::from_float<T>(engine::to_float(engine::from_float<bf16>(values.values[i])));
  return operand;
}

// What an output of activations starts with: NaN, or numbers that are added to.
template <class T>
Operand<T> stored_output(const Shape& shape, Write write) {
  if (write == Write::kAdd) return stored_operand<T>(shape, 77);
  return {shape, engine::from_float<T>(std::numeric_limits<float>::quiet_NaN())};
}

template <class T>
std::vector<float> floats_of(const Operand<T>& operand) {
  std::vector<float> values;
  for (const T value : operand.values) values.push_back(engine::to_float(value));
  return values;
}

// "" where each of `halves` is within a rounding to bf16 of the float, and of `slack` more, which
// is for sums in another order; else the first place where it is not.
inline std::string not_rounded(const std::vector<float>& halves, const std::vector<float>& floats,
                               double slack = 1e-6) {
  return far_apart(halves, floats, 0x1p-8, slack);
}

// As operator() of `run` gives them for T = float and T = bf16: vectors of results, of which the
// first `stored` are activations. Others must be near: they are f32 sums of the same numbers.
template <class Run>
void expect_same_rounded(const Run& run, std::size_t stored, double slack = 1e-6) {
  const std::vector<std::vector<float>> floats = run(float{}), halves = run(bf16{});
  ASSERT_EQ(floats.size(), halves.size());
  for (std::size_t i = 0; i < floats.size(); ++i) {
    SCOPED_TRACE("result " + std::to_string(i));
    EXPECT_EQ(i < stored ? not_rounded(halves[i], floats[i], slack)
                         : far_apart(halves[i], floats[i], 1e-5, slack),
              "");
  }
}

// Counts around whole vectors, and none.
inline const std::int64_t kStoredChannels[] = {1, 3, 8, 16, 17, 32, 45, 64, 100};

}  // namespace kernel_test
