// Tensor-core instructions of sm_80 and later as device functions: mma.sync, ldmatrix, and the
// rounding and packing of operands. Older devices compute the same numbers by what they have
// (tensor_core_before_80.h), the CPU from the registers of all lanes. Source of the layouts: PTX
// ISA, "Matrix Fragments for mma.m16n8k8 / m16n8k16" and "ldmatrix".
//
// All lanes of a warp must call each of these together. With g = lane / 4 and t = lane % 4 the
// registers of a lane hold
//   D, C [16 x 8] of f32, as (row, column):
//     c[0] (g, 2t)   c[1] (g, 2t + 1)   c[2] (g + 8, 2t)   c[3] (g + 8, 2t + 1)
//   k8, TF32, as (row, k) and (k, column):
//     a[0] (g, t)    a[1] (g + 8, t)    a[2] (g, t + 4)    a[3] (g + 8, t + 4)
//     b[0] (t, g)    b[1] (t + 4, g)
//   k16, BF16 and F16, as (row, k) and (k, column):
//     a[0] (g, 2t)   a[1] (g + 8, 2t)   a[2] (g, 2t + 8)   a[3] (g + 8, 2t + 8)
//     b[0] (2t, g)   b[1] (2t + 8, g)
//     Each register has two elements: the given one in its lower half, k + 1 in its upper half.
#pragma once

#include <type_traits>

#include "engine/ops/device/device_code.h"
#include "engine/ops/device/tensor_core_before_80.h"

namespace engine::ops::cuda {

// Returns the float nearest to `value` with 10 bits of fraction, ties away from zero, as required
// of TF32 operands. (The instruction truncates unrounded operands to their upper 19 bits.)
__device__ __forceinline__ float round_to_tf32(float value) {
#if defined(__CUDACC__) && !ENGINE_BEFORE_80
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits);
#else
  const std::uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  return __uint_as_float((bits + 0x1000u) & ~0x1fffu);
#endif
}

// Packs two 16-bit numbers into a register: `low` in the lower half.
template <class T>
__device__ __forceinline__ std::uint32_t pack(T low, T high) {
  static_assert(sizeof(T) == 2);
  return std::uint32_t{low.bits} | (std::uint32_t{high.bits} << 16);
}
// The same for floats, rounded to T (bf16 or f16).
template <class T>
__device__ __forceinline__ std::uint32_t pack_rounded(float low, float high) {
#if defined(__CUDACC__) && !ENGINE_BEFORE_80
  std::uint32_t both;
  if constexpr (std::is_same_v<T, bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  return pack(from_float<T>(low), from_float<T>(high));
#endif
}
template <class T>
__device__ __forceinline__ float low_of(std::uint32_t both) {
  return to_float(T{static_cast<std::uint16_t>(both)});
}
template <class T>
__device__ __forceinline__ float high_of(std::uint32_t both) {
  return to_float(T{static_cast<std::uint16_t>(both >> 16)});
}

#if !defined(__CUDACC__)
namespace emulated {
struct Fragments {
  std::uint32_t a[4], b[2];
};
// c += A B. `value(register, half)` is the number in a register's half; K is the number of terms of
// each sum.
template <int K, class Value>
void multiply(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
              Value value) {
  Fragments mine;
  std::memcpy(mine.a, a, sizeof a);
  std::memcpy(mine.b, b, sizeof b);
  const std::byte* lanes = simt::warp_gather(&mine, sizeof mine);
  const auto of = [&](unsigned lane) -> const Fragments& {
    return *reinterpret_cast<const Fragments*>(lanes + lane * simt::kLaneBytes);
  };
  const unsigned g = simt::lane() / 4, t = simt::lane() % 4;
  constexpr unsigned kEach = K / 8,
                     kSide = K / 2;  // elements per register; distance in k between registers
  for (unsigned k = 0; k < K; ++k) {
    const unsigned side = k / kSide, lane = k % kSide / kEach, half = k % kEach;
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned column = 2 * t + i % 2;
      c[i] += value(of(4 * g + lane).a[i / 2 + 2 * side], half) *
              value(of(4 * column + lane).b[side], half);
    }
  }
}
// Returns a lane's register of the 8 x 8 matrix whose rows are given by lanes [first, first + 8).
inline std::uint32_t matrix_part(const std::byte* lanes, unsigned first, bool transposed) {
  const auto element = [&](unsigned row, unsigned column) {
    const void* address;
    std::memcpy(&address, lanes + (first + row) * simt::kLaneBytes, sizeof address);
    if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0)
      throw std::logic_error("a matrix row that is not 16-byte aligned");
    std::uint16_t bits;
    std::memcpy(&bits, static_cast<const std::byte*>(address) + 2 * column, sizeof bits);
    return std::uint32_t{bits};
  };
  const unsigned g = simt::lane() / 4, t = simt::lane() % 4;
  if (transposed) return element(2 * t, g) | (element(2 * t + 1, g) << 16);
  return element(g, 2 * t) | (element(g, 2 * t + 1) << 16);
}
template <int Count>
void load_matrices(std::uint32_t (&to)[Count], const void* row, bool transposed) {
  const std::byte* lanes = simt::warp_gather(&row, sizeof row);
  for (unsigned i = 0; i < Count; ++i) to[i] = matrix_part(lanes, 8 * i, transposed);
}
}  // namespace emulated
#endif

// Number i of a register of operands.
template <class T>
struct RegisterNumber {
  __device__ float operator()(std::uint32_t bits, unsigned i) const {
    if constexpr (std::is_same_v<T, float>)
      return __uint_as_float(bits & ~0x1fffu);  // TF32
    else
      return i != 0 ? high_of<T>(bits) : low_of<T>(bits);
  }
};

// c += A B with A [16 x 8], B [8 x 8] of f32 numbers as TF32.
__device__ __forceinline__ void mma_m16n8k8_tf32(float (&c)[4], const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2]) {
#if ENGINE_BEFORE_80
  before_80::multiply_in_f32<8>(c, a, b, RegisterNumber<float>{});
#elif defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emulated::multiply<8>(c, a, b, RegisterNumber<float>{});
#endif
}
// c += A B with A [16 x 16], B [16 x 8] of bf16.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&c)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
#if ENGINE_BEFORE_80
  before_80::multiply_in_f32<16>(c, a, b, RegisterNumber<bf16>{});
#elif defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emulated::multiply<16>(c, a, b, RegisterNumber<bf16>{});
#endif
}
// The same with f16.
__device__ __forceinline__ void mma_m16n8k16_f16(float (&c)[4], const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2]) {
#if ENGINE_BEFORE_80
  before_80::mma_m16n8k16_f16(c, a, b, RegisterNumber<f16>{});
#elif defined(__CUDACC__)
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emulated::multiply<16>(c, a, b, RegisterNumber<f16>{});
#endif
}

// Loads Count 8 x 8 matrices of 16-bit elements from shared memory. Lane 8 i + r gives the 16-byte
// aligned address of row r of matrix i; for x2 the lanes from 16 on give any valid address. to[i]
// of a lane has (g, 2t) and (g, 2t + 1) of matrix i; with _trans (2t, g) and (2t + 1, g). A row may
// also be four 32-bit elements: without _trans to[i] is then element (g, t).
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&to)[4], const void* row) {
#if ENGINE_BEFORE_80 && ENGINE_COMPUTE < 750
  before_80::load_matrices(to, row, false);
#elif defined(__CUDACC__)
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
#else
  emulated::load_matrices(to, row, false);
#endif
}
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&to)[4], const void* row) {
#if ENGINE_BEFORE_80 && ENGINE_COMPUTE < 750
  before_80::load_matrices(to, row, true);
#elif defined(__CUDACC__)
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
#else
  emulated::load_matrices(to, row, true);
#endif
}
__device__ __forceinline__ void ldmatrix_x2(std::uint32_t (&to)[2], const void* row) {
#if ENGINE_BEFORE_80 && ENGINE_COMPUTE < 750
  before_80::load_matrices(to, row, false);
#elif defined(__CUDACC__)
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(from)
               : "memory");
#else
  emulated::load_matrices(to, row, false);
#endif
}
__device__ __forceinline__ void ldmatrix_x2_trans(std::uint32_t (&to)[2], const void* row) {
#if ENGINE_BEFORE_80 && ENGINE_COMPUTE < 750
  before_80::load_matrices(to, row, true);
#elif defined(__CUDACC__)
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(from)
               : "memory");
#else
  emulated::load_matrices(to, row, true);
#endif
}

}  // namespace engine::ops::cuda
