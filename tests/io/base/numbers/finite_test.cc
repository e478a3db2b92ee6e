// NaN and infinities are found at every place, and nothing else is.
#include "io/base/numbers/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace {

using base::DType;
using base::equal_and_finite;
using base::first_not_finite;

template <class T>
void expect_found(DType type, const std::vector<T>& finite, const std::vector<T>& others) {
  for (const std::size_t count : {0, 1, 7, 4095, 4096, 4097, 9000}) {
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = finite[i % finite.size()];
    ASSERT_EQ(first_not_finite(type, values.data(), count), -1) << count;
    std::vector<T> second = values;
    EXPECT_TRUE(equal_and_finite(type, values.data(), second.data(), count)) << count;
    auto* bytes = reinterpret_cast<std::byte*>(second.data());
    for (const std::size_t place : {std::size_t{0}, sizeof(T) * count / 2, sizeof(T) * count - 1}) {
      if (count == 0) continue;
      bytes[place] ^= std::byte{1};
      EXPECT_FALSE(equal_and_finite(type, values.data(), second.data(), count)) << count;
      bytes[place] ^= std::byte{1};
    }
    for (const std::size_t place : {0, 1, 6, 4094, 4095, 4096, 8999}) {
      if (place >= count) continue;
      for (const T& other : others) {
        std::vector<T> changed = values;
        changed[place] = changed.back() = other;
        EXPECT_EQ(first_not_finite(type, changed.data(), count), place) << count;
        const std::vector<T> same = changed;
        EXPECT_FALSE(equal_and_finite(type, changed.data(), same.data(), count)) << count;
      }
    }
  }
}

TEST(Finite, F32AndF64) {
  constexpr float kMost = std::numeric_limits<float>::max(),
                  kLeast = std::numeric_limits<float>::denorm_min(), kInf = INFINITY;
  expect_found<float>(DType::kF32, {0.0f, -0.0f, 1.5f, -kMost, kMost, kLeast, -kLeast},
                      {kInf, -kInf, std::nanf("1"), -std::nanf("1")});
  constexpr double kMore = std::numeric_limits<double>::max(), kEndless = INFINITY;
  expect_found<double>(DType::kF64, {0.0, -0.0, 1.5, -kMore, kMore, 5e-324, -5e-324},
                       {kEndless, -kEndless, std::nan("1"), -std::nan("1")});
}

TEST(Finite, Halves) {
  expect_found<std::uint16_t>(DType::kF16, {0, 0x8000, 0x3C00, 0x7BFF, 0xFBFF, 1, 0x8001},
                              {0x7C00, 0xFC00, 0x7C01, 0xFE00, 0x7FFF, 0xFFFF});
  expect_found<std::uint16_t>(DType::kBF16, {0, 0x8000, 0x3F80, 0x7F7F, 0xFF7F, 1, 0x7C00},
                              {0x7F80, 0xFF80, 0x7F81, 0xFFFF});
}

TEST(Finite, IntegersAreAndMemoryNeedNotBeAligned) {
  const std::vector<std::int64_t> integers(100, -1);
  for (const DType type : {DType::kI64, DType::kI32, DType::kU8})
    EXPECT_EQ(first_not_finite(type, integers.data(), 100), -1);
  std::vector<std::int64_t> others = integers;
  for (const DType type : {DType::kI64, DType::kI32, DType::kU8})
    EXPECT_TRUE(equal_and_finite(type, integers.data(), others.data(), 100));
  others[12] = 0;
  for (const DType type : {DType::kI64, DType::kI32, DType::kU8})
    EXPECT_FALSE(equal_and_finite(type, integers.data(), others.data(), 100));
  std::vector<std::byte> bytes(41);
  const float infinite = INFINITY;
  std::memcpy(bytes.data() + 1 + 8 * sizeof infinite, &infinite, sizeof infinite);
  EXPECT_EQ(first_not_finite(DType::kF32, bytes.data() + 1, 10), 8);
}

}  // namespace
