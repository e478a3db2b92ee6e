// The check sum of zip files.
#include "io/base/digests/crc32.h"

#include <gtest/gtest.h>

#include <string_view>

namespace base {
namespace {

std::uint32_t sum_of(std::uint32_t before, std::string_view text) {
  return add_crc32(before, std::as_bytes(std::span(text)));
}

TEST(Crc32, IsTheOneOfItsCheckValueAndOfParts) {
  EXPECT_EQ(sum_of(0, "123456789"), 0xCBF43926u);  // of every catalogue of CRC algorithms
  EXPECT_EQ(sum_of(0, ""), 0u);
  EXPECT_EQ(sum_of(sum_of(sum_of(0, "1234"), ""), "56789"), 0xCBF43926u);
}

}  // namespace
}  // namespace base
