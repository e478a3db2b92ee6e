// The storage type of activations and their gradients: floats, or bf16 in the sources that are
// compiled with ENGINE_BF16_STORED=1 (bf16_dispatch.h). Loads widen and stores round, to nearest
// with ties to even, so that all intermediate results are floats and are rounded once. Numbers
// below 2^-126 become 0. Only for sources compiled once per instruction set.
#pragma once

#include "engine/ops/common/simd.h"
#include "io/base/numbers/half.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

#if defined(ENGINE_BF16_STORED)
inline constexpr bool kHalves = true;
using Stored = base::bf16;

ENGINE_INLINE Floats widened(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_maskz_cvtepu16_epi32(0xFFFF, halves), 16));
}
ENGINE_INLINE __m256i rounded(Floats v) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)); }
ENGINE_INLINE __mmask16 first_halves(std::int64_t count) {
  return static_cast<__mmask16>((1u << count) - 1u);
}

ENGINE_INLINE Floats load(const Stored* p) {
  return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
ENGINE_INLINE void store(Stored* p, Floats v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), rounded(v));
}
ENGINE_INLINE Floats load_partial(const Stored* p, std::int64_t count) {
  return widened(_mm256_maskz_loadu_epi16(first_halves(count), p));
}
ENGINE_INLINE void store_partial(Stored* p, Floats v, std::int64_t count) {
  _mm256_mask_storeu_epi16(p, first_halves(count), rounded(v));
}
ENGINE_INLINE float element(const Stored* p) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(p->bits) << 16);
}
ENGINE_INLINE void store_element(Stored* p, float v) { store_partial(p, broadcast(v), 1); }

ENGINE_INLINE Quad load_quad(const Stored* p) {
  const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(halves), 16));
}
ENGINE_INLINE void store_quad(Stored* p, Quad v) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), reinterpret_cast<__m128i>(_mm_cvtneps_pbh(v)));
}
#else
inline constexpr bool kHalves = false;
using Stored = float;
ENGINE_INLINE float element(const Stored* p) { return *p; }
ENGINE_INLINE void store_element(Stored* p, float v) { *p = v; }
#endif

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
