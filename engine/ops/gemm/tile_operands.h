// The operands and outputs of a tile of a matrix product, for any instructions that compute it
// (gemm_tiles.h): steps of the summed dimension, rows of A, outputs. Only for sources compiled once
// per instruction set.
#pragma once

#include "engine/ops/common/stored.h"
#if defined(ENGINE_BF16_PAIRS)
#include "engine/ops/common/bf16_pairs.h"
#endif

#if defined(__clang__)
#define ENGINE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ENGINE_UNROLL _Pragma("GCC unroll 32")
#endif

namespace engine::ops::ENGINE_ISA_NAMESPACE {

inline constexpr int kPanel = 2 * kWidth;
#if defined(ENGINE_AMX_TILES)
inline constexpr int kMaxPointerRows = 32, kMaxStridedRows = 32;  // amx_tiles.h
#else
inline constexpr int kMaxPointerRows = kVectorBytes == 64 ? 8 : 6;
inline constexpr int kMaxStridedRows = kVectorBytes == 64 ? 14 : 6;
#endif
// Summed steps per pass: a panel of this length fills 24 KB (AVX-512: 32 KB, in L1 caches of 48 KB)
// of L1.
inline constexpr std::int64_t kStepsInCache = kVectorBytes == 64 ? 256 : 384;

// The terms that a step of a tile adds to its sums. With ENGINE_BF16_PAIRS, a float of A or B is a
// pair of bf16, two adjacent terms of the sum (common/bf16_dispatch.h), and both products are
// added. Packing rounds and pairs its floats; operands that tiles read in place must already be
// rounded and paired; all other code only moves these bits. Sums, c and bias are floats.
#if defined(ENGINE_BF16_PAIRS)
inline constexpr bool kPairs = true;
ENGINE_INLINE Floats add_products(Floats sum, Floats a, Floats b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
#else
inline constexpr bool kPairs = false;
ENGINE_INLINE Floats add_products(Floats sum, Floats a, Floats b) { return sum + a * b; }
#endif

// The number of terms per step, and the number of steps for `terms`.
inline constexpr std::int64_t kTerms = kPairs ? 2 : 1;
ENGINE_INLINE std::int64_t steps_of(std::int64_t terms) { return (terms + kTerms - 1) / kTerms; }

// A step of two adjacent rows, of `count` <= kWidth elements; of one row if the second is nullptr.
template <class T>
ENGINE_INLINE Floats step_of_rows(const T* first, [[maybe_unused]] const T* second,
                                  std::int64_t count) {
#if defined(ENGINE_BF16_PAIRS)
  return paired_rows(first, second, count);
#else
  return count == kWidth ? load(first) : load_partial(first, count);
#endif
}

// Copies `count` adjacent elements as steps for tiles that read them in place.
template <class T>
ENGINE_INLINE void copy_steps(const T* from, std::int64_t count, float* to) {
#if defined(ENGINE_BF16_PAIRS)
  pair_neighbours(from, count, to);
#else
  __builtin_memcpy(to, from, static_cast<unsigned long>(count) * sizeof(float));
#endif
}

// The destination of a tile's sums and the operations on them: c or bias is added, and relu is
// applied. C is float or Stored.
template <class C>
struct TileOutputOf {
  C* c;                  // first row and column of the matrix block
  std::int64_t columns;  // valid columns of this panel, 1..kPanel
  bool add;              // add to the values in c
  const float* bias;     // at the panel's first column, or nullptr; REQUIRES: !add
  bool relu;
  // If c is stored in bf16 and steps come in several chunks, holds the sums of a tile between
  // chunks, rows of kPanel floats, so that they are rounded once. nullptr: there is one chunk.
  float* sums = nullptr;
  bool begins = true, ends = true;  // the first chunk, the last one

  // REQUIRES: the members are those of the whole; `between` has room for the tile's rows, unless c
  // is floats.
  ENGINE_INLINE void set_chunk(std::int64_t chunk, std::int64_t chunks, float* between) {
    begins = chunk == 0, ends = chunk + 1 == chunks;
    if constexpr (sizeof(C) == sizeof(float)) {
      if (!begins) add = true, bias = nullptr;
      if (!ends) relu = false;
    } else if (chunks > 1) {
      sums = between;
    }
  }
};
using TileOutput = TileOutputOf<float>;

// Rows of A given by offsets: row i of the tile at step k is a[row[i] + place(k)], place(k) = table
// ? table[k] : k. Row i of the result is c + c_row[i]. REQUIRES: in bf16 without a table, rows are
// a constant distance apart, and row[1] gives it, even for a tile of one row.
struct PointerRows {
  const float* a;
  const std::int64_t* row;
  const std::int64_t* table;
  std::int64_t steps;
  const std::int64_t* c_row;
};

// Adjacent rows of A: row i of the tile at step k is a[place(k) + i], place(k) = table ? table[k] :
// k * stride. Row i of the result is c + i * c_stride.
struct AdjacentRows {
  const float* a;
  const std::int64_t* table;
  std::int64_t stride, steps;
  std::int64_t c_stride;
  // Unless nullptr, each step prefetches one line of later data into L2, starting here.
  const float* ahead = nullptr;
  std::int64_t ahead_stride = 0;
};

// Sums start from zero while the memory that they are added to is prefetched, so that nothing
// waits.
template <int kRows, int kVectors>
ENGINE_INLINE void start_row(Floats (&sum)[kRows][kVectors], int i, const void* c) {
  __builtin_prefetch(c);
  ENGINE_UNROLL
  for (int v = 0; v < kVectors; ++v) sum[i][v] = zero();
}

template <bool kWhole, int kRows, int kVectors, class C, class Row>
ENGINE_INLINE void store_sums(const Floats (&sum)[kRows][kVectors], const TileOutputOf<C>& out,
                              Row row) {
  ENGINE_UNROLL
  for (int i = 0; i < kRows; ++i) {
    C* c = row(i);
    ENGINE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t left = smaller(larger(out.columns - v * kWidth, 0), kWidth);
      const auto at = [=](const auto* p) {
        return kWhole ? load(p + v * kWidth) : load_partial(p + v * kWidth, left);
      };
      Floats value = sum[i][v];
      if (sizeof(C) < sizeof(float) && out.sums != nullptr) {
        float* between = out.sums + i * kPanel + v * kWidth;
        if (!out.begins) value += load(between);
        if (!out.ends) {
          store(between, value);
          continue;
        }
      }
      if (out.add) {
        value += at(c);
      } else if (out.bias != nullptr) {
        value += at(out.bias);
      }
      if (out.relu) value = relu(value);
      if (kWhole) {
        store(c + v * kWidth, value);
      } else {
        store_partial(c + v * kWidth, value, left);
      }
    }
  }
}

// row(i) is the start of row i of the result. `out` is a copy, because through a reference every
// store could change it; this and each branch matter for short sums.
template <int kRows, int kVectors, class C, class Row>
ENGINE_INLINE void finish_tile(const Floats (&sum)[kRows][kVectors], TileOutputOf<C> out, Row row) {
  if (out.columns != kVectors * kWidth) return store_sums<false>(sum, out, row);
  if (!out.add && out.bias == nullptr && !out.relu && out.sums == nullptr) {
    const TileOutputOf<C> plain{out.c, out.columns, false, nullptr, false};
    return store_sums<true>(sum, plain, row);
  }
  store_sums<true>(sum, out, row);
}

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
