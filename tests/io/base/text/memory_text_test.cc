// Sizes of memory have three digits, and a unit that fits.
#include "io/base/text/memory_text.h"

#include <gtest/gtest.h>

namespace {

constexpr std::uint64_t kKib = 1 << 10, kMib = 1 << 20, kGib = 1 << 30;

TEST(MemoryText, HasTheUnitThatFits) {
  using base::memory_text;
  EXPECT_EQ(memory_text(0), "0 B");
  EXPECT_EQ(memory_text(1023), "1023 B");
  EXPECT_EQ(memory_text(300 * kKib), "300 KiB");
  EXPECT_EQ(memory_text(kMib + kMib / 4), "1.25 MiB");
  EXPECT_EQ(memory_text(64'000'000), "61 MiB");
  EXPECT_EQ(memory_text(100 * kMib), "100 MiB");
  EXPECT_EQ(memory_text(13 * kGib), "13 GiB");
  EXPECT_EQ(memory_text(12 * kGib + kGib / 3), "12.3 GiB");
  EXPECT_EQ(memory_text(100 * 1024 * kGib), "100 TiB");
  EXPECT_EQ(memory_text(5'000'000 * kGib), "4883 TiB");
}

TEST(MemoryText, WhatIsEnoughIsRoundedUp) {
  EXPECT_EQ(base::enough_memory_text(1), "1 KiB");
  EXPECT_EQ(base::enough_memory_text(618 * kKib), "618 KiB");
  EXPECT_EQ(base::enough_memory_text(9 * kMib + 1), "9217 KiB");
  EXPECT_EQ(base::enough_memory_text(10 * kMib + 1), "11 MiB");
}

}  // namespace
