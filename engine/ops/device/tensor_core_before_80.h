// Functions in place of the tensor-core instructions of 8.0, for older devices. Products of f16: on
// 7.5 by m16n8k8, on 7.0 by mma.m8n8k4, in which each group of eight lanes multiplies on its own,
// with other places of the numbers. All others in float32 arithmetic, for which the lanes exchange
// their operands. Matrices are loaded without ldmatrix before 7.5. Source of the places: PTX ISA,
// "Matrix Fragments for mma.m8n8k4" and "mma.m16n8k8"; the former agree with SM70_8x4_Row and
// SM70_8x8_32b of NVIDIA's CUTLASS. Included by tensor_core.h, where the places of 8.0 are
// explained.
#pragma once

#include "engine/ops/device/device_code.h"

#if ENGINE_BEFORE_80
namespace engine::ops::cuda::before_80 {

// c += A B with A [16 x K], B [K x 8]: value(register, i) is number i of a register.
template <int K, class Value>
__device__ __forceinline__ void multiply_in_f32(float (&c)[4], const std::uint32_t (&a)[4],
                                                const std::uint32_t (&b)[2], Value value) {
  const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll 1                               // kernels have dozens of these products
    for (int other = 0; other < 4; ++other) {  // the lane that holds these k
      const std::uint32_t upper = shuffle_from(a[2 * half], 4 * g + other),
                          lower = shuffle_from(a[2 * half + 1], 4 * g + other),
                          left = shuffle_from(b[half], 8 * t + other),
                          right = shuffle_from(b[half], 8 * t + 4 + other);
      for (int i = 0; i < K / 8; ++i) {
        c[0] += value(upper, i) * value(left, i);
        c[1] += value(upper, i) * value(right, i);
        c[2] += value(lower, i) * value(left, i);
        c[3] += value(lower, i) * value(right, i);
      }
    }
  }
}

#if ENGINE_COMPUTE >= 700 && ENGINE_COMPUTE < 750
// d += A B by each group of eight lanes on its own, with A [8 x 4] and B [4 x 8] of f16. With
// i = lane % 4, + 4 in the upper half of the warp, a lane holds row i of A and column i of B, and d
// at row lane % 2 + (r & 2) + 4 (upper half), column (r & 4) + (lane & 2) + (r & 1).
__device__ __forceinline__ void mma_m8n8k4_f16(float (&d)[8], std::uint32_t a0, std::uint32_t a1,
                                               std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11}, {%0,%1,%2,%3,%4,%5,%6,%7};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "r"(a0), "r"(a1), "r"(b0), "r"(b1));
}

// Returns value[index], for an index that the compiler does not know, without an address.
template <class T>
__device__ __forceinline__ T chosen(const T (&value)[4], int index) {
  const T low = index & 1 ? value[1] : value[0], high = index & 1 ? value[3] : value[2];
  return index & 2 ? high : low;
}

// c += A B with A [16 x 16], B [16 x 8] of f16, by mma.m8n8k4. The lanes of group q = lane / 4 % 4
// compute rows 8 (q % 2) and following, for the half q / 2 of k. Each exchange moves one register
// of every lane: in exchange j a lane provides what the one group needs that reads from it.
__device__ __forceinline__ void multiply_by_groups(float (&c)[4], const std::uint32_t (&a)[4],
                                                   const std::uint32_t (&b)[2]) {
  const int lane = lane_index(), q = lane / 4 % 4, half = q / 2, i = lane % 4 + lane / 16 * 4;
  std::uint32_t moved[4], a_part[4], b_part[4];  // the parts by pairs of k
  for (int j = 0; j < 4; ++j)
    moved[j] = shuffle_from(chosen(a, (lane + j) % 4), 4 * i + ((q - j) & 3));
  for (int pair = 0; pair < 4; ++pair) a_part[pair] = chosen(moved, (q - pair) & 3);
  for (int j = 0; j < 4; ++j)
    moved[j] = shuffle_from((lane + j) % 2 == 0 ? b[0] : b[1], 4 * i + (j ^ half));
  for (int pair = 0; pair < 4; ++pair) b_part[pair] = half == 0 ? moved[pair] : moved[pair ^ 1];

  float d[8] = {};
  mma_m8n8k4_f16(d, a_part[0], a_part[1], b_part[0], b_part[1]);
  mma_m8n8k4_f16(d, a_part[2], a_part[3], b_part[2], b_part[3]);

  // The halves of k are added: a lane keeps columns 4 half to 4 half + 3.
  float sum[4];
  for (int r = 0; r < 4; ++r) {
    const float other = shuffle_xor(half == 0 ? d[r + 4] : d[r], 8);
    sum[r] = (half == 0 ? d[r] : d[r + 4]) + other;
  }
  // To the places of m16n8k16: rows g and g + 8 come from groups of even and of odd number.
  const int g = lane / 4, t = lane % 4, pair = g / 2 % 2;
  for (int j = 0; j < 2; ++j) {
    const int rows = pair ^ j, from = g % 2 + t % 2 * 2 + 4 * (rows + t / 2 * 2) + g / 4 * 16;
    const bool upper = (q % 2 ^ j) != 0;  // what this lane provides
    const float low = shuffle_from(upper ? sum[2] : sum[0], from),
                high = shuffle_from(upper ? sum[3] : sum[1], from);
    c[0] += rows == 0 ? low : 0;
    c[1] += rows == 0 ? high : 0;
    c[2] += rows == 0 ? 0 : low;
    c[3] += rows == 0 ? 0 : high;
  }
}

#endif

// c += A B with A [16 x 16], B [16 x 8] of f16; value(register, i) is number i of a register.
template <class Value>
__device__ __forceinline__ void mma_m16n8k16_f16(float (&c)[4], const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2],
                                                 [[maybe_unused]] Value value) {
#if ENGINE_COMPUTE >= 750
  for (int half = 0; half < 2; ++half)
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#elif ENGINE_COMPUTE >= 700
  multiply_by_groups(c, a, b);
#else
  multiply_in_f32<16>(c, a, b, value);
#endif
}

// As ldmatrix: lane 8 m + r gives the address of row r of matrix m.
template <int Count>
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[Count], const void* row,
                                              bool transposed) {
  const auto mine = static_cast<unsigned>(__cvta_generic_to_shared(row));
  const int g = lane_index() / 4, t = lane_index() % 4;
  for (int m = 0; m < Count; ++m) {
    if (!transposed) {
      const unsigned from = shuffle_from(mine, 8 * m + g) + 4 * static_cast<unsigned>(t);
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to[m]) : "r"(from) : "memory");
      continue;
    }
    std::uint16_t pair[2];
    for (int k = 0; k < 2; ++k) {
      const unsigned from = shuffle_from(mine, 8 * m + 2 * t + k) + 2 * static_cast<unsigned>(g);
      asm volatile("ld.shared.u16 %0, [%1];" : "=h"(pair[k]) : "r"(from) : "memory");
    }
    to[m] = std::uint32_t{pair[0]} | (std::uint32_t{pair[1]} << 16);
  }
}

}  // namespace engine::ops::cuda::before_80
#endif
