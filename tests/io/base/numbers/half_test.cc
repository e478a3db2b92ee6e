// The 16-bit formats against their definition: every half, the ties between neighbors, and what
// becomes of a NaN.
#include "io/base/numbers/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace {

using base::bf16;
using base::f16;
using base::from_float;
using base::to_float;

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

double f16_by_definition(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

double bf16_by_definition(std::uint16_t bits) {
  const int exponent = (bits >> 7) & 255, fraction = bits & 127;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 255)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -133) : std::ldexp(128 + fraction, exponent - 134));
}

template <class Half>
void expect_definition(double (*by_definition)(std::uint16_t), int fraction_bits) {
  const std::uint32_t quiet = 1u << (fraction_bits - 1), shift = 23 - fraction_bits;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const double expected = by_definition(half.bits);
    const float wide = to_float(half);
    if (std::isnan(expected)) {
      // The payload moves along; on the way back the NaN becomes quiet, and is else the same.
      ASSERT_EQ(bits_of(wide), ((bits & 0x8000) << 16) | 0x7f800000 |
                                   ((bits & ((1u << fraction_bits) - 1)) << shift));
      ASSERT_EQ(from_float<Half>(wide).bits, bits | quiet);
    } else {
      ASSERT_EQ(static_cast<double>(wide), expected) << bits;
      ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0) << bits;
      ASSERT_EQ(from_float<Half>(wide).bits, bits);
    }
  }
}

TEST(Half, EveryF16IsWhatItsBitsSayAndComesBack) { expect_definition<f16>(&f16_by_definition, 10); }
TEST(Half, EveryBF16IsWhatItsBitsSayAndComesBack) {
  expect_definition<bf16>(&bf16_by_definition, 7);
}

// Between two neighbors of a 16-bit format the nearer one wins, half-way the even one.
template <class Half>
void expect_nearest(double (*by_definition)(std::uint16_t), std::uint16_t largest) {
  const auto narrow = [](float value) { return from_float<Half>(value).bits; };
  for (std::uint16_t bits = 0; bits < largest; ++bits) {
    const double low = by_definition(bits),
                 high = by_definition(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact: one more digit
    const int even = (bits & 1) != 0 ? bits + 1 : bits;
    ASSERT_EQ(narrow(middle), even) << bits;
    ASSERT_EQ(narrow(-middle), 0x8000 | even) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, -1.0f)), bits) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, HUGE_VALF)), bits + 1) << bits;
    ASSERT_EQ(narrow(-std::nextafter(middle, -1.0f)), 0x8000 | bits) << bits;
  }
}

TEST(Half, F16RoundsToNearestEven) {
  expect_nearest<f16>(&f16_by_definition, 0x7bff);
  EXPECT_EQ(from_float<f16>(65519.996f).bits, 0x7bff);
  // Half-way to what would be the next number: infinity.
  EXPECT_EQ(from_float<f16>(65520.0f).bits, 0x7c00);
  EXPECT_EQ(from_float<f16>(1e30f).bits, 0x7c00);
  EXPECT_EQ(from_float<f16>(-HUGE_VALF).bits, 0xfc00);
}

TEST(Half, BF16RoundsToNearestEven) {
  expect_nearest<bf16>(&bf16_by_definition, 0x7f7f);
  EXPECT_EQ(from_float<bf16>(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(from_float<bf16>(-HUGE_VALF).bits, 0xff80);
}

// Payload bits that a half has no room for are cut off; where those were all, it is still a NaN.
TEST(Half, ANaNKeepsItsSignAndTheUpperBitsOfItsPayload) {
  const auto nan = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  EXPECT_EQ(from_float<f16>(nan(0x7f800001)).bits, 0x7e00);
  EXPECT_EQ(from_float<f16>(nan(0xff802000)).bits, 0xfe01);
  EXPECT_EQ(from_float<f16>(nan(0x7fffffff)).bits, 0x7fff);
  EXPECT_EQ(from_float<bf16>(nan(0x7f800001)).bits, 0x7fc0);
  EXPECT_EQ(from_float<bf16>(nan(0xff810000)).bits, 0xffc1);
  EXPECT_EQ(from_float<bf16>(nan(0x7fffffff)).bits, 0x7fff);
}

}  // namespace
