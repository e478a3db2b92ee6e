// Vectors of floats of the width of the instruction set that the including source is compiled for:
// Eigen's packets (SSE, AVX, AVX-512, NEON) under our own names. No other file uses Eigen's
// internal names. Only for sources compiled once per instruction set: everything is in
// ENGINE_ISA_NAMESPACE, and Eigen's namespace is renamed (see cpu_dispatch.h).
//
// Packets are the compiler's vector types, so sums, products, quotients and comparisons are written
// with operators. a * b + c becomes one fused multiply-add if the CPU has it and the source allows
// it (-ffp-contract); pmadd would decide this for all sources alike.
#pragma once

#include <cstdint>

// Otherwise Eigen 3.4 computes square roots from an approximation on x86.
#define EIGEN_FAST_MATH 0
#include <Eigen/Core>

#ifndef ENGINE_ISA_NAMESPACE
#error "simd.h is for sources compiled once per instruction set"
#endif

#define ENGINE_INLINE inline __attribute__((always_inline))

namespace engine::ops::ENGINE_ISA_NAMESPACE {

namespace packets = Eigen::internal;

using Floats = packets::packet_traits<float>::type;
inline constexpr int kVectorBytes = sizeof(Floats);
inline constexpr int kWidth = kVectorBytes / 4;  // floats per vector; a multiple of 4
static_assert(kWidth == packets::packet_traits<float>::size && kWidth % 4 == 0);

// The bits of Floats, and the result of comparisons: -1 or 0. This is the compiler's type: Eigen's
// packets of integers on x86 are classes without operators, and cannot be compared with AVX-512.
typedef std::int32_t Ints __attribute__((vector_size(kVectorBytes)));

// std::min and std::max are not used: the linker could merge std templates across instruction sets.
ENGINE_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
ENGINE_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

ENGINE_INLINE Floats load(const float* p) { return packets::ploadu<Floats>(p); }
ENGINE_INLINE void store(float* p, Floats v) { packets::pstoreu(p, v); }
ENGINE_INLINE Floats broadcast(float x) { return packets::pset1<Floats>(x); }
ENGINE_INLINE Floats zero() { return Floats{}; }

// Loads the first `count` lanes of `Packet`, 0 <= count <= its width: with Eigen's masks if the
// instruction set has them, otherwise one by one.
template <class Packet, class Traits = packets::unpacket_traits<Packet>>
ENGINE_INLINE Packet load_first(const float* p, std::int64_t count) {
  if constexpr (Traits::masked_load_available) {
    return packets::ploadu<Packet>(p, static_cast<typename Traits::mask_t>((1u << count) - 1u));
  } else {
    Packet v{};
    for (int i = 0; i < Traits::size; ++i)
      if (i < count) v[i] = p[i];
    return v;
  }
}
template <class Packet, class Traits = packets::unpacket_traits<Packet>>
ENGINE_INLINE void store_first(float* p, Packet v, std::int64_t count) {
  if constexpr (Traits::masked_store_available) {
    packets::pstoreu(p, v, static_cast<typename Traits::mask_t>((1u << count) - 1u));
  } else {
    for (int i = 0; i < Traits::size; ++i)
      if (i < count) p[i] = v[i];
  }
}

// Loads the first `count` of kWidth elements, 0 <= count <= kWidth; memory beyond them is not
// accessed, and the other lanes are 0.
ENGINE_INLINE Floats load_partial(const float* p, std::int64_t count) {
  return load_first<Floats>(p, count);
}
ENGINE_INLINE void store_partial(float* p, Floats v, std::int64_t count) {
  store_first<Floats>(p, v, count);
}

// Returns lanes of `a` if the lane of `mask` is -1, and lanes of `b` if it is 0.
ENGINE_INLINE Floats select(Ints mask, Floats a, Floats b) { return mask ? a : b; }

// Lane by lane `a > b ? a : b` and `a < b ? a : b`. If b is NaN, the result is b; if only a is NaN,
// it is b on x86 and NaN on ARM. (Eigen's order of operands is that of std::max.)
ENGINE_INLINE Floats max(Floats a, Floats b) { return packets::pmax(b, a); }
ENGINE_INLINE Floats min(Floats a, Floats b) { return packets::pmin(b, a); }

// max(0, v) that keeps NaN.
ENGINE_INLINE Floats relu(Floats v) { return max(zero(), v); }

ENGINE_INLINE Floats square_root(Floats v) { return packets::psqrt(v); }  // correctly rounded

// The sum and the largest of the lanes, by halving.
ENGINE_INLINE float horizontal_sum(Floats v) { return packets::predux(v); }
ENGINE_INLINE float horizontal_max(Floats v) { return packets::predux_max(v); }

// Four floats, and 4 x 4 squares, on every instruction set.
using Quad = packets::Packet4f;
using QuadSquare = packets::PacketBlock<Quad, 4>;

ENGINE_INLINE Quad load_quad(const float* p) { return packets::ploadu<Quad>(p); }
ENGINE_INLINE void store_quad(float* p, Quad v) { packets::pstoreu(p, v); }
ENGINE_INLINE void transpose(QuadSquare& square) { packets::ptranspose(square); }

// A square of kWidth vectors.
using Square = packets::PacketBlock<Floats, kWidth>;
ENGINE_INLINE void transpose_square(Square& square) { packets::ptranspose(square); }

// Loads four floats from each of kWidth / 4 rows at a distance of `stride`: lane group g of the
// result is p[g * stride .. + 3]. It uses x86 intrinsics: Eigen has no load that combines quads.
ENGINE_INLINE Floats load_quads(const float* p, [[maybe_unused]] std::int64_t stride) {
#if defined(__AVX512F__)
  Floats v = _mm512_castps128_ps512(_mm_loadu_ps(p));
  v = _mm512_insertf32x4(v, _mm_loadu_ps(p + stride), 1);
  v = _mm512_insertf32x4(v, _mm_loadu_ps(p + 2 * stride), 2);
  return _mm512_insertf32x4(v, _mm_loadu_ps(p + 3 * stride), 3);
#elif defined(__AVX__)
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + stride), 1);
#else
  return load(p);
#endif
}

// Transposes the 4 x 4 matrix in each group of four lanes, as ptranspose does for vectors of four.
// ptranspose transposes wider vectors as a whole, with twice as many shuffles for the same floats.
ENGINE_INLINE void transpose_quads(Floats& a, Floats& b, Floats& c, Floats& d) {
#if defined(__AVX512F__)
#define ENGINE_QUADS(x, y, i, j, k, l)                                                            \
  __builtin_shufflevector(x, y, i, j, k, l, (i) + 4, (j) + 4, (k) + 4, (l) + 4, (i) + 8, (j) + 8, \
                          (k) + 8, (l) + 8, (i) + 12, (j) + 12, (k) + 12, (l) + 12)
  constexpr int second = 16;
#elif defined(__AVX__)
#define ENGINE_QUADS(x, y, i, j, k, l) \
  __builtin_shufflevector(x, y, i, j, k, l, (i) + 4, (j) + 4, (k) + 4, (l) + 4)
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

// Returns the sums of the lanes of four vectors, side by side.
template <class Packet>
ENGINE_INLINE Quad folded_to_quad(Packet v) {
  if constexpr (packets::unpacket_traits<Packet>::size == 4) {
    return v;
  } else {
    return folded_to_quad(packets::predux_half_dowto4(v));
  }
}
ENGINE_INLINE Quad horizontal_sums(Floats a, Floats b, Floats c, Floats d) {
  transpose_quads(a, b, c, d);
  return folded_to_quad((a + b) + (c + d));
}

using Doubles = packets::packet_traits<double>::type;  // kWidth / 2 lanes

ENGINE_INLINE Doubles load(const double* p) { return packets::ploadu<Doubles>(p); }
ENGINE_INLINE void store(double* p, Doubles v) { packets::pstoreu(p, v); }
ENGINE_INLINE Doubles broadcast(double x) { return packets::pset1<Doubles>(x); }

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
