// Numbers from bytes of any width and alignment.
#include "io/base/numbers/number_bytes.h"

#include <gtest/gtest.h>

#include <array>

namespace {

TEST(NumberBytes, TheLowestByteIsFirst) {
  constexpr std::array<std::uint8_t, 8> kBytes{1, 2, 3, 0xff, 0, 0, 0, 0x80};
  EXPECT_EQ(base::little_endian(kBytes.data(), 1), 1u);
  EXPECT_EQ(base::little_endian(kBytes.data(), 2), 0x201u);
  EXPECT_EQ(base::little_endian(kBytes.data(), 4), 0xff030201u);
  EXPECT_EQ(base::little_endian(kBytes.data(), 8), 0x80000000ff030201u);
}

TEST(NumberBytes, ElementsNeedNoAlignment) {
  std::array<std::byte, 9> bytes{};
  bytes[5] = std::byte{7};
  EXPECT_EQ(base::element_at<std::uint32_t>(std::span(bytes).subspan(1), 1), 7u);
}

}  // namespace
