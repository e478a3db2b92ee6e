// Floats rounded to bf16, to nearest with ties to even, and combined into pairs: a product in bf16
// sums over two terms at a time. A pair occupies the space of a float; the first of the two is in
// its lower half. If a count is odd, the missing element is 0. Numbers below 2^-126 become 0, as in
// the products. Only for sources compiled for AVX512_BF16.
#pragma once

#include "engine/ops/common/stored.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// Returns the lanes of `low`, then those of `high`.
ENGINE_INLINE __m512i rounded(Floats low, Floats high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// Pair i consists of lane i of both.
ENGINE_INLINE Floats paired(Floats first, Floats second) {
  alignas(64) static constexpr std::uint16_t kOrder[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return reinterpret_cast<Floats>(
      _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), rounded(first, second)));
}

// Pairs adjacent elements of one row: pair i is from[2 i], from[2 i + 1].
ENGINE_INLINE void pair_neighbours(const float* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + 2 * kWidth <= count; i += 2 * kWidth)
    store(to + i / 2, reinterpret_cast<Floats>(rounded(load(from + i), load(from + i + kWidth))));
  if (i == count) return;
  const std::int64_t left = count - i;
  const Floats low = load_partial(from + i, smaller(left, kWidth)),
               high = left > kWidth ? load_partial(from + i + kWidth, left - kWidth) : zero();
  store_partial(to + i / 2, reinterpret_cast<Floats>(rounded(low, high)), (left + 1) / 2);
}

// Pairs two rows: pair i is first[i], second[i]; nullptr stands for zeros.
ENGINE_INLINE void pair_rows(const float* first, const float* second, std::int64_t count,
                             float* to) {
  std::int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth)
    store(to + i, paired(load(first + i), second == nullptr ? zero() : load(second + i)));
  if (i == count) return;
  const std::int64_t left = count - i;
  store_partial(to + i,
                paired(load_partial(first + i, left),
                       second == nullptr ? zero() : load_partial(second + i, left)),
                left);
}

// The same for one vector, of `count` <= kWidth pairs.
ENGINE_INLINE Floats paired_rows(const float* first, const float* second, std::int64_t count) {
  return paired(load_partial(first, count),
                second == nullptr ? zero() : load_partial(second, count));
}

#if defined(ENGINE_BF16_STORED)
// The same for elements that are already rounded.
ENGINE_INLINE Floats paired_rows(const Stored* first, const Stored* second, std::int64_t count) {
  const auto words = [=](const Stored* p) {
    return _mm512_maskz_cvtepu16_epi32(0xFFFF, _mm256_maskz_loadu_epi16(first_halves(count), p));
  };
  const __m512i low = words(first);
  if (second == nullptr) return _mm512_castsi512_ps(low);
  return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(words(second), 16)));
}
ENGINE_INLINE void pair_rows(const Stored* first, const Stored* second, std::int64_t count,
                             float* to) {
  for (std::int64_t i = 0; i < count; i += kWidth) {
    const std::int64_t here = smaller(count - i, kWidth);
    store_partial(to + i, paired_rows(first + i, second == nullptr ? nullptr : second + i, here),
                  here);
  }
}
ENGINE_INLINE void pair_neighbours(const Stored* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + 2 * kWidth <= count; i += 2 * kWidth)
    _mm512_storeu_si512(to + i / 2, _mm512_loadu_si512(from + i));
  if (i == count) return;
  const auto left = static_cast<__mmask32>((1u << (count - i)) - 1u);
  store_partial(to + i / 2, _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(left, from + i)),
                (count - i + 1) / 2);
}
#endif

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
