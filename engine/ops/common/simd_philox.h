// Draws Philox words of many counters side by side. Only for sources compiled once per instruction
// set (simd.h).
#pragma once

#include "engine/ops/common/simd.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

typedef std::uint32_t Words __attribute__((vector_size(kVectorBytes)));
typedef std::uint64_t LongWords __attribute__((vector_size(kVectorBytes)));
inline constexpr int kDraws = kWidth;  // blocks of four words that are drawn at a time

// Multiplies the lower halves of 64-bit lanes to full products. It is written by hand: Eigen 3.4
// has no packets of unsigned words on x86 and no widening product; compilers turn one 64-bit
// product into two or three 32-bit products.
ENGINE_INLINE LongWords multiply_halves(LongWords a, LongWords b) {
#if defined(__AVX512F__)
  return reinterpret_cast<LongWords>(
      _mm512_maskz_mul_epu32(0xFF, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<LongWords>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
  return reinterpret_cast<LongWords>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#elif defined(__ARM_NEON)
  return reinterpret_cast<LongWords>(vmull_u32(vmovn_u64(reinterpret_cast<uint64x2_t>(a)),
                                               vmovn_u64(reinterpret_cast<uint64x2_t>(b))));
#else
  return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF);
#endif
}

struct Product {
  Words high, low;
};
ENGINE_INLINE Product multiply(Words a, std::uint32_t b) {
  const LongWords lanes = reinterpret_cast<LongWords>(a), factor = LongWords{} + b;
  const LongWords even = multiply_halves(lanes, factor), odd = multiply_halves(lanes >> 32, factor);
  return {reinterpret_cast<Words>((even >> 32) | (odd >> 32 << 32)),
          reinterpret_cast<Words>((even << 32 >> 32) | (odd << 32))};
}

// Words 0 to 3 of kDraws blocks.
struct WordBlocks {
  Words at[4];
};

// Computes blocks low, low + step, ... of (key, high) side by side: philox() of
// engine/core/random.h.
ENGINE_INLINE WordBlocks philox_blocks(std::uint64_t key, std::uint64_t high, std::uint64_t low,
                                       std::uint64_t step) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  Words c0{}, c1{}, c2 = Words{} + static_cast<std::uint32_t>(high),
                    c3 = Words{} + static_cast<std::uint32_t>(high >> 32);
  for (int i = 0; i < kDraws; ++i) {
    const std::uint64_t counter = low + static_cast<std::uint64_t>(i) * step;
    c0[i] = static_cast<std::uint32_t>(counter);
    c1[i] = static_cast<std::uint32_t>(counter >> 32);
  }
  for (int round = 0; round < 10; ++round) {
    const Product p0 = multiply(c0, 0xD2511F53), p1 = multiply(c2, 0xCD9E8D57);
    c0 = p1.high ^ c1 ^ k0;
    c1 = p1.low;
    c2 = p0.high ^ c3 ^ k1;
    c3 = p0.low;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

// Writes the words of blocks [low, low + kDraws), block by block.
inline void philox_words(std::uint64_t key, std::uint64_t high, std::uint64_t low,
                         std::uint32_t (&words)[4 * kDraws]) {
  const WordBlocks blocks = philox_blocks(key, high, low, 1);
  for (int i = 0; i < kDraws; ++i)
    for (int word = 0; word < 4; ++word) words[4 * i + word] = blocks.at[word][i];
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
