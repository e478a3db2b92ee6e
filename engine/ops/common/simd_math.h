// exp and functions based on it, for vectors of floats. Only for sources compiled once per
// instruction set (simd.h). Coefficients: weighted least squares iterated to the minimax of the
// relative error (Lawson, 1961), rounded to float.
#pragma once

#include "engine/ops/common/simd.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {

// Returns 2^n for integers n in [-126, 127].
ENGINE_INLINE Floats power_of_two(Ints n) { return reinterpret_cast<Floats>((n + 127) << 23); }

// e^(x + low) with a relative error of at most 2e-7 down to the smallest normal number, and an
// absolute error of at most 2^-149 below it. Infinite above 88.72, NaN for NaN. `low`, |low| <=
// 0.06, is the rounding error of x. Method: x = n log(2) + r with |r| <= log(2) / 2, e^r by a
// polynomial (Cody and Waite, 1980).
ENGINE_INLINE Floats exp(Floats x, Floats low = zero()) {
  x = min(broadcast(89.f), max(broadcast(-104.f), x));
  const Floats shifter =
      broadcast(0x1.8p23f);  // sums with it are rounded to integers, which its low bits then hold
  const Floats shifted = x * broadcast(0x1.715476p+0f) + shifter;
  const Floats whole = shifted - shifter;
  const Ints n = reinterpret_cast<Ints>(shifted) - reinterpret_cast<Ints>(shifter);
  const Floats r = (x - whole * broadcast(0x1.62e4p-1f)) - whole * broadcast(0x1.7f7d1cp-20f) + low;
  Floats sum = r * broadcast(0x1.6ab92p-10f) + broadcast(0x1.126d64p-7f);
  sum = sum * r + broadcast(0x1.55589cp-5f);
  sum = sum * r + broadcast(0x1.55540ap-3f);
  sum = sum * r + broadcast(0x1.fffffap-2f);
  sum = sum * r + broadcast(1.f);
  sum = sum * r + broadcast(1.f);
  const Ints half = n >> 1;  // two steps: 2^n alone may exceed the range of floats
  return sum * power_of_two(half) * power_of_two(n - half);
}

// 2^x with a relative error of at most 2e-7 for -126 <= x <= 127; below that, with an absolute
// error of at most 2^-126, and 0 from -150 down. NaN for NaN. It costs half as much as exp, since x
// needs no reduction by log(2): for exponents in units of log(2) that are rounded anyway, as in a
// softmax. REQUIRES: x < 127.5. It uses x86 intrinsics: AVX-512 has instructions for both parts of
// the reduction, which saves a fifth of the time.
ENGINE_INLINE Floats exp2(Floats x) {
#if defined(__AVX512DQ__)
  const Floats r = _mm512_reduce_ps(x, 8);  // 8: round to the nearest integer; 0 for infinities
#else
  x = max(broadcast(-127.f), x);
  const Floats shifter = broadcast(0x1.8p23f + 127);  // as in exp; the low bits hold the integer +
                                                      // 127
  const Floats shifted = x + shifter;
  const Floats r = x - (shifted - shifter);
#endif
  Floats sum = r * broadcast(0x1.5bba0ep-10f) + broadcast(0x1.3cea88p-7f);
  sum = sum * r + broadcast(0x1.c6b752p-5f);
  sum = sum * r + broadcast(0x1.ebf9bcp-3f);
  sum = sum * r + broadcast(0x1.62e42ap-1f);
  sum = sum * r + broadcast(1.f);
#if defined(__AVX512DQ__)
  return _mm512_scalef_ps(sum, x - r);
#else
  return sum * reinterpret_cast<Floats>(reinterpret_cast<Ints>(shifted) << 23);
#endif
}

// log(x) within 2e-7, relative to the larger of 1 and its magnitude, for positive normal numbers;
// NaN for NaN and infinity. Method: x = 2^n m with m near 1, and log(m) = 2 artanh((m - 1) / (m +
// 1)) by its series.
ENGINE_INLINE Floats log(Floats x) {
  const Ints bits = reinterpret_cast<Ints>(x);
  const Ints n = (bits - 0x3F3504F3) >> 23;  // sqrt(1 / 2) <= m < sqrt(2)
  const Floats m = reinterpret_cast<Floats>(bits - (n << 23));
  const Floats s = (m - broadcast(1.f)) / (m + broadcast(1.f)), square = s * s;
  Floats sum = square * broadcast(2.f / 9) + broadcast(2.f / 7);
  sum = sum * square + broadcast(2.f / 5);
  sum = sum * square + broadcast(2.f / 3);
  const Floats whole = __builtin_convertvector(n, Floats);
  return whole * broadcast(0x1.62e43p-1f) + (sum * square * s + (s + s)) + (x - x);
}

struct NormalDistribution {
  Floats density, below;  // e^(-x^2 / 2) / sqrt(2 pi), and its integral up to x
};

// Both with a relative error of at most 6e-7 for |x| <= 12; beyond 14, density is 0, and below is 0
// or 1.
// below = erfc(-x / sqrt(2)) / 2, where erfc(a) e^(a^2) is a polynomial in 1 / (1 + 0.4 a) for
// a >= 0.
ENGINE_INLINE NormalDistribution normal_distribution(Floats x) {
  const Floats size = min(broadcast(15.f), max(x, -x));
  const Floats high = reinterpret_cast<Floats>(reinterpret_cast<Ints>(size) &
                                               ~0xFFF);  // 12 bits: its square is exact
  const Floats bell =
      exp(high * high * broadcast(-0.5f), (size - high) * (size + high) * broadcast(-0.5f));
  const Floats t =
      broadcast(1.f) / (broadcast(1.f) + size * broadcast(0.28284271f));  // 0.4 / sqrt(2)
  Floats sum = t * broadcast(0.04143583214771368f) + broadcast(-0.14121501560437585f);
  sum = sum * t + broadcast(0.08585355683750667f);
  sum = sum * t + broadcast(0.0858110175050016f);
  sum = sum * t + broadcast(0.08125722318952099f);
  sum = sum * t + broadcast(0.19274813544171052f);
  sum = sum * t + broadcast(0.20205412727262692f);
  sum = sum * t + broadcast(0.22641956067240834f);
  sum = sum * t + broadcast(0.22563562513574514f);
  const Floats tail = broadcast(0.5f) * bell * t * sum;
  return {bell * broadcast(0.3989422804014327f), select(x > zero(), broadcast(1.f) - tail, tail)};
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
