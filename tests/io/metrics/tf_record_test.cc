// Framing and checksums of event files, against published vectors.
#include "io/metrics/tf_record.h"

#include <gtest/gtest.h>

#include <string>

namespace {

using namespace std::string_literals;

// RFC 3720, appendix B.4, and the check value of the catalogue of CRCs.
TEST(TfRecord, CrcIsCastagnolis) {
  std::string ascending, descending;
  for (int i = 0; i < 32; ++i) {
    ascending.push_back(static_cast<char>(i));
    descending.push_back(static_cast<char>(31 - i));
  }
  EXPECT_EQ(io::crc32c(""), 0u);
  EXPECT_EQ(io::crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(io::crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(io::crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(io::crc32c(ascending), 0x46DD794Eu);
  EXPECT_EQ(io::crc32c(descending), 0x113FDB5Cu);
}

// The mask is a rotation by 15 and a sum: of 0, the constant alone.
TEST(TfRecord, MaskedSums) {
  EXPECT_EQ(io::masked_crc32c(""), 0xA282EAD8u);
  // 0xE3069283 rotated right by 15 is 0x2507C60D.
  EXPECT_EQ(io::masked_crc32c("123456789"), 0x2507C60Du + 0xA282EAD8u);
}

// The record that every event file begins with (brain.Event:2 at time 0), as TensorFlow frames it:
// length, masked sum of the length, payload, masked sum of the payload.
TEST(TfRecord, IsLengthSumPayloadSum) {
  const std::string payload = "abc", record = io::tf_record(payload);
  ASSERT_EQ(record.size(), 8u + 4 + 3 + 4);
  const std::string length = "\x03\0\0\0\0\0\0\0"s;
  EXPECT_EQ(record.substr(0, 8), length);
  const auto number_at = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (int i = 3; i >= 0; --i)
      value = value << 8 | static_cast<unsigned char>(record[at + static_cast<std::size_t>(i)]);
    return value;
  };
  EXPECT_EQ(number_at(8), io::masked_crc32c(length));
  EXPECT_EQ(record.substr(12, 3), payload);
  EXPECT_EQ(number_at(15), io::masked_crc32c(payload));
  EXPECT_EQ(io::tf_record("").size(), 16u);
}

}  // namespace
