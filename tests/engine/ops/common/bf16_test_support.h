// What the tests of products in bf16 on the CPU share: operands as these products read them, and
// operands at addresses that are aligned to nothing.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/ops/common/bf16_dispatch.h"
#include "tests/engine/ops/common/kernel_test_support.h"

namespace kernel_test {

// Tests that are skipped, and so counted, where the CPU cannot compute what they test.
class Bf16Test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = engine::ops::missing_bf16_products(); !missing.empty())
      GTEST_SKIP() << missing;
  }
};

// To the nearest number with 8 bits, ties to even.
inline Operand<float> rounded(Operand<float> operand) {
  for (float& value : operand.values)
    value = engine::to_float(engine::from_float<engine::bf16>(value));
  return operand;
}
inline Operand<double> widen_rounded(const Operand<float>& operand) {
  return widen(rounded(operand));
}
inline Operand<double> rounded_magnitudes(const Operand<float>& operand) {
  return gemm_test::wide_magnitudes(rounded(operand));
}

// Scratch and products for a call; scratch is full of NaN and exactly as large as asked for.
struct Bf16Context : Context {
  Bf16Context(int threads, std::size_t scratch_bytes) : Context(threads, scratch_bytes) {
    context.products = engine::Products::kBF16;
  }
};

// The same values, four bytes behind an address that is a multiple of 64.
class Misplaced {
 public:
  explicit Misplaced(Operand<float> operand)
      : shape_(operand.shape), arena_((operand.values.size() + 1) * sizeof(float)) {
    std::copy(operand.values.begin(), operand.values.end(), start());
  }
  engine::TensorView view() { return {start(), engine::DType::kF32, shape_, {}}; }
  std::vector<float> values() { return {start(), start() + shape_.count()}; }

 private:
  float* start() { return reinterpret_cast<float*>(arena_.data()) + 1; }

  Shape shape_;
  engine::Arena arena_;
};

}  // namespace kernel_test
