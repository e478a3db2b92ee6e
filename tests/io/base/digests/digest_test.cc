// Digests are those of XXH3's specification, at once and piece by piece.
#include "io/base/digests/digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The values that the specification gives for no input, seed 0.
TEST(Digest, OfNothing) {
  EXPECT_EQ(base::digest_of({}), (base::Digest{0x6001c324468d497f, 0x99aa06d3014798d8}));
  EXPECT_EQ(base::short_digest_of(""), 0x2d06800538d394c2u);
}

TEST(Digest, PiecesGiveTheDigestOfTheWhole) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += std::to_string(i);
  base::StreamDigest stream;
  for (std::size_t at = 0, n = 1; at < text.size(); at += n, n = n * 2 + 1)
    stream.add(bytes_of(text).subspan(at, std::min(n, text.size() - at)));
  EXPECT_EQ(stream.value(), base::digest_of(bytes_of(text)));
  text.back() ^= 1;
  EXPECT_NE(stream.value(), base::digest_of(bytes_of(text)));
}

// Long enough for code that the library chooses by the CPU. The values are those of the library's
// plain code, in a program of its own.
TEST(Digest, OfAMillionBytesIsTheSameOnEveryCpu) {
  std::vector<std::byte> bytes(1'000'003);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>((i * i / 7 + i) % 251);
  const base::Digest expected{.low = 0xc4cf1e67b4b63bec, .high = 0xb1be7dea89dce0ec};
  EXPECT_EQ(base::digest_of(bytes), expected);
  base::StreamDigest stream;
  for (std::size_t at = 0; at < bytes.size(); at += 77'777)
    stream.add(std::span(bytes).subspan(at, std::min<std::size_t>(77'777, bytes.size() - at)));
  EXPECT_EQ(stream.value(), expected);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_EQ(base::short_digest_of(text), expected.low);  // the specification has them equal
}

TEST(Digest, IsWrittenAsHexadecimalDigits) {
  EXPECT_EQ(base::hex_text(std::uint64_t{0xAB}), "00000000000000ab");
  EXPECT_EQ(base::hex_text(base::Digest{.low = 1, .high = 0xF000000000000000}),
            "f0000000000000000000000000000001");
}

}  // namespace
