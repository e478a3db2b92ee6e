// The digest of parts that were looked at apart is that of the whole.
#include "io/base/digests/digest_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "io/base/numbers/split_mix.h"

namespace {

std::vector<std::byte> text_of(std::size_t bytes) {
  io::SplitMix random(bytes, 1, 2);
  std::vector<std::byte> text(bytes);
  for (std::byte& byte : text) byte = static_cast<std::byte>(random.below(256));
  return text;
}

// `borders`: ascending, from 0 to the end of the text.
base::Digest of_parts(std::span<const std::byte> text, const std::vector<std::size_t>& borders) {
  std::vector<base::DigestPart> parts;
  for (std::size_t i = 1; i < borders.size(); ++i) {
    parts.emplace_back(borders[i - 1]);
    const auto bytes = text.subspan(borders[i - 1], borders[i] - borders[i - 1]);
    const auto first = bytes.first(bytes.size() / 3);
    parts.back().add(first);
    parts.back().add(bytes.subspan(first.size()));
    EXPECT_EQ(parts.back().end(), borders[i]);
  }
  base::PartedDigest whole;
  for (const base::DigestPart& part : parts) whole.add(part);
  EXPECT_EQ(whole.size(), text.size());
  return whole.value();
}

TEST(DigestParts, EveryLengthAtOnce) {
  const std::vector<std::byte> text = text_of(5 * base::kDigestBlock + 100);
  for (std::size_t bytes = 0; bytes <= text.size(); ++bytes) {
    const auto begin = std::span(text).first(bytes);
    ASSERT_EQ(of_parts(begin, {0, bytes}), base::digest_of(begin)) << bytes;
  }
}

TEST(DigestParts, EveryBorderBetweenTwo) {
  for (const std::size_t bytes : {3 * base::kDigestBlock - 1, 3 * base::kDigestBlock,
                                  3 * base::kDigestBlock + 1, std::size_t{241}}) {
    const std::vector<std::byte> text = text_of(bytes);
    const base::Digest expected = base::digest_of(text);
    for (std::size_t border = 0; border <= bytes; ++border)
      ASSERT_EQ(of_parts(text, {0, border, bytes}), expected) << border << " of " << bytes;
  }
}

TEST(DigestParts, AnyBordersBetweenMany) {
  io::SplitMix random(7, 8, 9);
  for (int round = 0; round < 300; ++round) {
    const std::vector<std::byte> text = text_of(random.below(40'000));
    std::vector<std::size_t> borders{0, text.size()};
    for (std::uint64_t i = random.below(20); i > 0; --i)
      borders.push_back(random.below(static_cast<std::uint32_t>(text.size()) + 1));
    std::sort(borders.begin(), borders.end());
    ASSERT_EQ(of_parts(text, borders), base::digest_of(text)) << "round " << round;
  }
}

TEST(DigestParts, OrderAndEveryByteCount) {
  std::vector<std::byte> text = text_of(4 * base::kDigestBlock);
  const std::vector<std::size_t> borders{0, 1500, 3000, text.size()};
  const base::Digest before = of_parts(text, borders);
  for (const std::size_t place :
       {std::size_t{0}, std::size_t{1499}, std::size_t{2999}, std::size_t{3000}, text.size() - 1}) {
    text[place] ^= std::byte{1};
    EXPECT_NE(of_parts(text, borders), before) << place;
    text[place] ^= std::byte{1};
  }
  std::swap_ranges(text.begin(), text.begin() + base::kDigestBlock,
                   text.begin() + base::kDigestBlock);
  EXPECT_NE(of_parts(text, borders), before);
}

}  // namespace
