// The 16-bit formats against their definition, and folds of several parts.
#include "backends/reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "backends/half_float.h"

namespace {

using backends::DataType;
using backends::ReduceOp;

double f16_by_definition(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

TEST(HalfFloat, EveryF16IsWhatItsBitsSayAndComesBack) {
  for (int bits = 0; bits < 65536; ++bits) {
    const backends::Float16 half{static_cast<std::uint16_t>(bits)};
    const double expected = f16_by_definition(half.bits);
    const float wide = backends::to_float(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(wide) && std::isnan(backends::to_float(backends::to_float16(wide))))
          << bits;
    } else {
      EXPECT_EQ(static_cast<double>(wide), expected) << bits;
      EXPECT_EQ(backends::to_float16(wide).bits, bits);
    }
  }
}

// Between two neighbours of a 16-bit format the nearer one wins, half-way the even one.
template <typename Narrow, typename From>
void expect_nearest(const Narrow& narrow, const From& from, std::uint16_t largest) {
  for (std::uint16_t bits = 0; bits < largest; ++bits) {
    const double low = from(bits), high = from(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact: one more digit
    const std::uint16_t even = (bits & 1) != 0 ? bits + 1 : bits;
    EXPECT_EQ(narrow(middle), even) << bits;
    EXPECT_EQ(narrow(std::nextafter(middle, -1.0f)), bits) << bits;
    EXPECT_EQ(narrow(std::nextafter(middle, HUGE_VALF)), bits + 1) << bits;
    EXPECT_EQ(narrow(-std::nextafter(middle, -1.0f)), 0x8000 | bits) << bits;
  }
}

TEST(HalfFloat, F16RoundsToNearestEven) {
  expect_nearest([](float v) { return backends::to_float16(v).bits; }, f16_by_definition, 0x7bff);
  EXPECT_EQ(backends::to_float16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(backends::to_float16(65520.0f).bits,
            0x7c00);  // half-way to what would be the next number: infinity
  EXPECT_EQ(backends::to_float16(-HUGE_VALF).bits, 0xfc00);
}

TEST(HalfFloat, BF16RoundsToNearestEven) {
  expect_nearest([](float v) { return backends::to_bfloat16(v).bits; },
                 [](std::uint16_t bits) {
                   return static_cast<double>(backends::to_float(backends::BFloat16{bits}));
                 },
                 0x7f7f);
  EXPECT_EQ(backends::to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(backends::to_float(backends::to_bfloat16(std::nanf("")))));
}

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
        backends::reduce_parts(into, parts.data(), part_count, count, DataType::kF32,
                               ReduceOp::kSum);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), into))
            << part_count << " parts of " << count << " into " << out;
      }
    }
  }
}

}  // namespace
