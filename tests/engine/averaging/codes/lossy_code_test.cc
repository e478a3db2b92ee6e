// Codes of blocks: their bytes, how far decoded elements may be, and that rounding has no bias.
#include "engine/averaging/codes/lossy_code.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/core/random.h"

namespace engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// In [-size, size), without a pattern.
std::vector<float> numbers(std::int64_t count, float size = 1, std::uint64_t stream = 0) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(size *
                     (2 * uniform_float(philox(stream, 0, static_cast<std::uint64_t>(i))[0]) - 1));
  return values;
}

template <class Code>
std::vector<std::byte> encoded(const Code& code, const std::vector<float>& block,
                               const RoundingNoise& noise = {1, 0, 0}) {
  // A byte more than the code, which must stay.
  std::vector<std::byte> bytes(code.block_bytes(static_cast<std::int64_t>(block.size())) + 1,
                               std::byte{0xa5});
  code.encode(std::span<const float>(block), noise, 0, bytes.data());
  EXPECT_EQ(bytes.back(), std::byte{0xa5});
  bytes.pop_back();
  return bytes;
}

template <class Code>
std::vector<float> decoded(const Code& code, const std::vector<std::byte>& bytes,
                           std::size_t count) {
  std::vector<float> values(count);
  code.add(bytes.data(), 1.0F, std::span<float>(values));
  return values;
}

template <class Code>
std::vector<float> coded(const Code& code, const std::vector<float>& block,
                         const RoundingNoise& noise = {1, 0, 0}) {
  return decoded(code, encoded(code, block, noise), block.size());
}

double scale_of(const std::vector<std::byte>& bytes) {
  base::bf16 scale;
  std::memcpy(&scale, bytes.data(), sizeof scale);
  return static_cast<double>(base::to_float(scale));
}

// --- quantized

TEST(QuantizedCode, SendsAlmostFourAndEightTimesLess) {
  const QuantizedCode eight(8), four(4);
  EXPECT_EQ(eight.block_bytes(256), 258u);
  EXPECT_EQ(four.block_bytes(256), 130u);
  EXPECT_EQ(four.block_bytes(3), 4u);
  constexpr std::int64_t kCount = 1'000'003;
  EXPECT_EQ(code_bytes(eight, kCount), 3906u * 258 + 2 + 67);
  EXPECT_EQ(code_bytes(four, kCount), 3906u * 130 + 2 + 34);
  EXPECT_GE(4.0 * kCount / static_cast<double>(code_bytes(eight, kCount)), 3.9);
  EXPECT_GE(4.0 * kCount / static_cast<double>(code_bytes(four, kCount)), 7.5);
}

TEST(QuantizedCode, ElementsDifferByLessThanTheScale) {
  for (const int bits : {8, 4}) {
    const QuantizedCode code(bits);
    const int levels = bits == 8 ? 127 : 7;
    for (const float size : {1e-44F, 1e-38F, 1e-3F, 1.0F, 3e38F})
      for (const std::int64_t count : {1, 2, 255, 256}) {
        const std::vector<float> block = numbers(count, size);
        const std::vector<std::byte> bytes = encoded(code, block);
        const std::vector<float> back = decoded(code, bytes, block.size());
        double largest = 0;
        for (const float v : block) largest = std::max(largest, std::abs(static_cast<double>(v)));
        const double scale = scale_of(bytes);
        EXPECT_LE(largest, scale * levels);
        if (size > 1e-37F) {
          EXPECT_LE(scale, largest / levels * (1 + 0x1p-6));
        }
        for (std::size_t i = 0; i < block.size(); ++i)
          ASSERT_LT(std::abs(static_cast<double>(block[i]) - static_cast<double>(back[i])),
                    scale * (1 + 1e-5))
              << bits << " bits, size " << size << ", element " << i;
      }
  }
}

TEST(QuantizedCode, RoundingHasNoBias) {
  constexpr int kRounds = 20'000;
  for (const int bits : {8, 4}) {
    const QuantizedCode code(bits);
    const std::vector<float> block = numbers(64);
    std::vector<double> sums(block.size());
    double scale = 0;
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<std::byte> bytes = encoded(code, block, RoundingNoise(7, 3, round));
      scale = scale_of(bytes);
      const std::vector<float> back = decoded(code, bytes, block.size());
      for (std::size_t i = 0; i < block.size(); ++i) sums[i] += static_cast<double>(back[i]);
    }
    // The deviation of one rounding is at most half the scale; six of the mean's.
    const double bound = 6 * 0.5 * scale / std::sqrt(kRounds);
    for (std::size_t i = 0; i < block.size(); ++i)
      EXPECT_NEAR(sums[i] / kRounds, static_cast<double>(block[i]), bound) << bits << " bits";
  }
}

TEST(QuantizedCode, WhatIsRepresentedStaysAsItIs) {
  const QuantizedCode code(4);
  const std::vector<float> levels{-7, -6, -1, 0, 1, 5, 6, 7}, zeros(9, 0.0F);
  EXPECT_EQ(coded(code, levels), levels);
  EXPECT_EQ(coded(code, zeros), zeros);
  EXPECT_EQ(coded(QuantizedCode(8), zeros), zeros);
}

TEST(QuantizedCode, ABlockThatIsNotFiniteDecodesToNan) {
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")})
    for (const int bits : {8, 4}) {
      std::vector<float> block(5, 1.0F);
      block[3] = bad;
      for (const float v : coded(QuantizedCode(bits), block)) EXPECT_TRUE(std::isnan(v));
    }
}

TEST(RoundingNoise, DependsOnStreamRankRoundAndElementAlone) {
  const float one = RoundingNoise(1, 2, 3).at(4);
  EXPECT_EQ(RoundingNoise(1, 2, 3).at(4), one);
  for (const float other : {RoundingNoise(0, 2, 3).at(4), RoundingNoise(1, 0, 3).at(4),
                            RoundingNoise(1, 2, 0).at(4), RoundingNoise(1, 2, 3).at(0)})
    EXPECT_NE(other, one);
}

// --- sparse

TEST(SparseCode, PacksIndicesAndValues) {
  EXPECT_EQ(SparseCode(2, 82).block_bytes(4096), 4u + 144);  // 82 * 14 bits, rounded up
  EXPECT_EQ(SparseCode(8, 4096).block_bytes(4096), 4u + 10240);
  const SparseCode code(4, 41);
  EXPECT_EQ(code.kept_of(4096), 41);
  EXPECT_EQ(code.kept_of(4095), 41);
  EXPECT_EQ(code.kept_of(1), 1);
  EXPECT_EQ(code_bytes(code, 2 * 4096 + 100), 2 * (4u + 82) + 4 + 4);
}

TEST(SparseCode, SendsTheLargestElementsOfEachBlock) {
  for (const int bits : {2, 4, 8})
    for (const std::int64_t count : {1, 100, 4095, 4096}) {
      const SparseCode code(bits, 64);
      const std::vector<float> block = numbers(count), back = coded(code, block);
      float min_sent = 2, max_kept = 0;
      std::int64_t sent = 0;
      for (std::size_t i = 0; i < block.size(); ++i) {
        if (back[i] == 0) {
          max_kept = std::max(max_kept, std::abs(block[i]));
          continue;
        }
        ++sent;
        min_sent = std::min(min_sent, std::abs(block[i]));
        EXPECT_EQ(std::signbit(back[i]), std::signbit(block[i]));
      }
      EXPECT_EQ(sent, code.kept_of(count));
      EXPECT_GE(min_sent, max_kept);
    }
}

// Levels are at most as far apart as from the smallest to the largest element over their number,
// and bf16 rounds the two that describe them.
TEST(SparseCode, ValuesDifferByHalfAStep) {
  for (const int bits : {4, 8}) {
    const std::vector<float> block = numbers(4096), back = coded(SparseCode(bits, 400), block);
    double low = 1, high = 0;
    for (std::size_t i = 0; i < block.size(); ++i)
      if (back[i] != 0) {
        low = std::min(low, std::abs(static_cast<double>(block[i])));
        high = std::max(high, std::abs(static_cast<double>(block[i])));
      }
    const double step = (high - low) / ((1 << (bits - 1)) - 1);
    for (std::size_t i = 0; i < block.size(); ++i)
      if (back[i] != 0) {
        ASSERT_LE(std::abs(static_cast<double>(block[i]) - static_cast<double>(back[i])),
                  0.75 * step + 0x1p-8 * high);
      }
  }
}

TEST(SparseCode, TwoBitsAreTheMeansOfTheSmallerAndTheLarger) {
  EXPECT_EQ(coded(SparseCode(2, 4096), {1, -1, 2, 8, -9, 10}),
            (std::vector<float>{1.3359375F, -1.3359375F, 1.3359375F, 8.9921875F, -8.9921875F,
                                8.9921875F}));  // 4/3 and 9, as a base and a step in bf16
}

TEST(SparseCode, TakesTheFirstOfEqualElementsAndZeros) {
  const SparseCode code(8, 2048);  // half of a block
  EXPECT_EQ(coded(code, {1, -1, 1, 1}), (std::vector<float>{1, -1, 0, 0}));
  EXPECT_EQ(coded(code, {0, 0, 0}), (std::vector<float>{0, 0, 0}));
}

// Between two parameters are zeros, whose errors no checkpoint would have.
TEST(SparseCode, ZerosAmongTheSentStayZeros) {
  const std::vector<float> block{0, 0.3F, -0.7F, 1.234F, 0, 0.011F, 0};
  for (const int bits : {2, 4, 8}) {
    const std::vector<float> back = coded(SparseCode(bits, 4096), block);
    for (const std::size_t i : {0, 4, 6}) EXPECT_EQ(back[i], 0) << bits << " bits";
    EXPECT_NEAR(back[3], bits == 2 ? 0.984F : 1.234F, 0.1F) << bits << " bits";
  }
}

TEST(SparseCode, SendsWhatIsNotFiniteAsNan) {
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    std::vector<float> block = numbers(100);
    block[70] = bad;
    EXPECT_TRUE(std::isnan(coded(SparseCode(2, 128), block)[70]));
  }
}

TEST(SparseCode, RejectsAnIndexOutsideItsBlock) {
  const SparseCode code(2, 4096);
  std::vector<std::byte> bytes = encoded(code, {1, 2, 3});
  code.check(bytes.data(), 3);
  bytes[4] = std::byte{3};  // the first index
  EXPECT_THROW(code.check(bytes.data(), 3), Error);
}

TEST(SparseCode, ClearsWhatWasSent) {
  const SparseCode code(2, 2048);
  const std::vector<std::byte> bytes = encoded(code, {0, 5, 1, -6});
  std::vector<float> velocity{1, 2, 3, 4};
  code.clear_sent(bytes.data(), std::span<float>(velocity));
  EXPECT_EQ(velocity, (std::vector<float>{1, 0, 3, 0}));
}

// --- rounds

std::vector<std::int64_t> kept_in_rounds(const LossyOptions& options, std::int64_t rounds) {
  std::vector<std::int64_t> kept;
  for (std::int64_t round = 0; round < rounds; ++round)
    kept.push_back(std::get<SparseCode>(code_of_round(options, round)).kept_of(4096));
  return kept;
}

TEST(CodeOfRound, AWarmupSendsAQuarterThenASixteenthAndSoOn) {
  LossyOptions options{.kind = LossyOptions::Kind::kSparse, .ratio = 0.01, .warmup = 6};
  EXPECT_EQ(kept_in_rounds(options, 8),
            (std::vector<std::int64_t>{1024, 1024, 256, 256, 64, 64, 41, 41}));
  options.ratio = 0.25;  // no stage is above it
  EXPECT_EQ(kept_in_rounds(options, 2), (std::vector<std::int64_t>{1024, 1024}));
  options.ratio = 1e-9;
  options.warmup = 0;
  EXPECT_EQ(kept_in_rounds(options, 1), (std::vector<std::int64_t>{1}));
  options.ratio = 1;
  EXPECT_EQ(kept_in_rounds(options, 1), (std::vector<std::int64_t>{4096}));
}

TEST(LossyText, NamesTheMethod) {
  EXPECT_EQ(lossy_text({.bits = 4}), "int4");
  EXPECT_EQ(lossy_text({.kind = LossyOptions::Kind::kSparse, .bits = 2, .ratio = 0.02}),
            "sparse 0.02, 2 bits");
}

}  // namespace
}  // namespace engine
