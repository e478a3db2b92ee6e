// Vectors of floats as wide as the instruction set that the including source is compiled for, on
// the vector extensions of GCC and clang. Only for sources in kernel_isa_sources: everything lies
// in ENGINE_ISA_NAMESPACE (see cpu_dispatch.h). a * b + c on these types becomes one fused
// multiply-add where the CPU has it (-ffp-contract=fast).
#pragma once

#include <cstdint>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#ifndef ENGINE_ISA_NAMESPACE
#error "simd.h is for sources compiled once per instruction set"
#endif

#define ENGINE_INLINE inline __attribute__((always_inline))

namespace engine::ops::ENGINE_ISA_NAMESPACE {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif
inline constexpr int kWidth = kVectorBytes / 4;  // floats in a vector; a multiple of 4

typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef std::int32_t Ints
    __attribute__((vector_size(kVectorBytes)));  // also the result of a comparison: -1 or 0
typedef float UnalignedFloats __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
typedef double Doubles __attribute__((vector_size(kVectorBytes)));  // kWidth / 2 of them
typedef double UnalignedDoubles __attribute__((vector_size(kVectorBytes), aligned(8), may_alias));
typedef float HalfFloats __attribute__((vector_size(kVectorBytes / 2)));

// No std::min / std::max here: templates of std could be merged across instruction sets.
ENGINE_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
ENGINE_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

ENGINE_INLINE Floats load(const float* p) { return *reinterpret_cast<const UnalignedFloats*>(p); }
ENGINE_INLINE void store(float* p, Floats v) { *reinterpret_cast<UnalignedFloats*>(p) = v; }
ENGINE_INLINE Floats broadcast(float x) {
  return x - Floats{};
}  // x - 0 is x for every x, so it is one instruction
ENGINE_INLINE Floats zero() { return Floats{}; }

// The first `count` of kWidth elements, 0 <= count <= kWidth; memory behind them is not touched,
// lanes behind them are 0.
ENGINE_INLINE Floats load_partial(const float* p, std::int64_t count) {
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(
      _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1u), p));
#elif defined(__AVX2__)
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return reinterpret_cast<Floats>(
      _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane)));
#else
  Floats v{};
  for (int i = 0; i < kWidth; ++i)
    if (i < count) v[i] = p[i];
  return v;
#endif
}

ENGINE_INLINE void store_partial(float* p, Floats v, std::int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1u), reinterpret_cast<__m512>(v));
#elif defined(__AVX2__)
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  _mm256_maskstore_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane),
                      reinterpret_cast<__m256>(v));
#else
  for (int i = 0; i < kWidth; ++i)
    if (i < count) p[i] = v[i];
#endif
}

// Lanes of `a` where the lane of `mask` is -1, of `b` where it is 0.
ENGINE_INLINE Floats select(Ints mask, Floats a, Floats b) {
  return reinterpret_cast<Floats>((reinterpret_cast<Ints>(a) & mask) |
                                  (reinterpret_cast<Ints>(b) & ~mask));
}

// Like `a > b ? a : b`: when either is NaN, b.
ENGINE_INLINE Floats max(Floats a, Floats b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(
      _mm512_max_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b)));
#elif defined(__AVX__)
  return reinterpret_cast<Floats>(
      _mm256_max_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b)));
#elif defined(__SSE2__)
  return reinterpret_cast<Floats>(
      _mm_max_ps(reinterpret_cast<__m128>(a), reinterpret_cast<__m128>(b)));
#else
  return select(a > b, a, b);
#endif
}

// max(0, v) that keeps NaN.
ENGINE_INLINE Floats relu(Floats v) { return max(zero(), v); }

ENGINE_INLINE Floats square_root(Floats v) {
#if defined(__AVX512F__)
  return reinterpret_cast<Floats>(_mm512_sqrt_ps(reinterpret_cast<__m512>(v)));
#elif defined(__AVX__)
  return reinterpret_cast<Floats>(_mm256_sqrt_ps(reinterpret_cast<__m256>(v)));
#elif defined(__SSE2__)
  return reinterpret_cast<Floats>(_mm_sqrt_ps(reinterpret_cast<__m128>(v)));
#else
  for (int i = 0; i < kWidth; ++i) v[i] = __builtin_sqrtf(v[i]);
  return v;
#endif
}

// Sum and largest of the lanes, by halving.
ENGINE_INLINE float horizontal_sum(Floats v) {
  float lanes[kWidth];
  store(lanes, v);
  for (int half = kWidth / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

ENGINE_INLINE float horizontal_max(Floats v) {
  float lanes[kWidth];
  store(lanes, v);
  for (int half = kWidth / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i)
      lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
  return lanes[0];
}

// Four floats from each of kWidth / 4 rows, `stride` apart: lane group g of the result is p[g *
// stride .. + 3].
ENGINE_INLINE Floats load_quads(const float* p, [[maybe_unused]] std::int64_t stride) {
#if defined(__AVX512F__)
  __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(p));
  v = _mm512_insertf32x4(v, _mm_loadu_ps(p + stride), 1);
  v = _mm512_insertf32x4(v, _mm_loadu_ps(p + 2 * stride), 2);
  return reinterpret_cast<Floats>(_mm512_insertf32x4(v, _mm_loadu_ps(p + 3 * stride), 3));
#elif defined(__AVX__)
  return reinterpret_cast<Floats>(
      _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + stride), 1));
#else
  return load(p);
#endif
}

// Transposes the 4 x 4 matrix in each group of four lanes.
ENGINE_INLINE void transpose_quads(Floats& a, Floats& b, Floats& c, Floats& d) {
#if defined(__AVX512F__)
#define ENGINE_QUADS(x, y, i, j, k, l)                                                       \
  __builtin_shufflevector(x, y, i, j, k, l, i + 4, j + 4, k + 4, l + 4, i + 8, j + 8, k + 8, \
                          l + 8, i + 12, j + 12, k + 12, l + 12)
  constexpr int second = 16;
#elif defined(__AVX__)
#define ENGINE_QUADS(x, y, i, j, k, l) \
  __builtin_shufflevector(x, y, i, j, k, l, i + 4, j + 4, k + 4, l + 4)
  constexpr int second = 8;
#else
#define ENGINE_QUADS(x, y, i, j, k, l) __builtin_shufflevector(x, y, i, j, k, l)
  constexpr int second = 4;
#endif
  const Floats ab_low = ENGINE_QUADS(a, b, 0, second, 1, second + 1),
               ab_high = ENGINE_QUADS(a, b, 2, second + 2, 3, second + 3);
  const Floats cd_low = ENGINE_QUADS(c, d, 0, second, 1, second + 1),
               cd_high = ENGINE_QUADS(c, d, 2, second + 2, 3, second + 3);
  a = ENGINE_QUADS(ab_low, cd_low, 0, 1, second, second + 1);
  b = ENGINE_QUADS(ab_low, cd_low, 2, 3, second + 2, second + 3);
  c = ENGINE_QUADS(ab_high, cd_high, 0, 1, second, second + 1);
  d = ENGINE_QUADS(ab_high, cd_high, 2, 3, second + 2, second + 3);
#undef ENGINE_QUADS
}

ENGINE_INLINE Doubles load(const double* p) {
  return *reinterpret_cast<const UnalignedDoubles*>(p);
}
ENGINE_INLINE void store(double* p, Doubles v) { *reinterpret_cast<UnalignedDoubles*>(p) = v; }
ENGINE_INLINE Doubles broadcast(double x) { return x - Doubles{}; }

// The first and second half of the lanes as doubles.
ENGINE_INLINE Doubles widen_low(Floats v) {
  HalfFloats half;
  __builtin_memcpy(&half, &v, sizeof half);
  return __builtin_convertvector(half, Doubles);
}
ENGINE_INLINE Doubles widen_high(Floats v) {
  HalfFloats half;
  __builtin_memcpy(&half, reinterpret_cast<const char*>(&v) + sizeof half, sizeof half);
  return __builtin_convertvector(half, Doubles);
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
