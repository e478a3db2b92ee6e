// Products of a matrix M [rows, columns] with thin matrices of `rank` columns; all are row-major.
// Each result element is one sum in order, so the bits do not depend on the number of threads, and
// plain loops give the same bits on every machine for one build. Kernels have them too
// (engine/ops/low_rank/low_rank_codes.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/codes/lane_sums.h"
#include "engine/ops/low_rank/low_rank_rules.h"

namespace engine {

struct LowRankSizes {
  std::int64_t rows, columns;
  int rank;
};

// p [rows, rank] = M q, q [columns, rank].
template <class T>
void multiply(ThreadPool& threads, LowRankSizes s, const T* m, const T* q, T* p) {
  threads.run(s.rows, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i) {
      T* out = p + i * s.rank;
      std::fill(out, out + s.rank, T(0));
      for (std::int64_t j = 0; j < s.columns; ++j)
        for (int c = 0; c < s.rank; ++c) out[c] += m[i * s.columns + j] * q[j * s.rank + c];
    }
  });
}

// q [columns, rank] = M^T p.
template <class T>
void multiply_transposed(ThreadPool& threads, LowRankSizes s, const T* m, const T* p, T* q) {
  threads.run(s.columns, [=](std::int64_t first, std::int64_t last, int) {
    std::fill(q + first * s.rank, q + last * s.rank, T(0));
    for (std::int64_t i = 0; i < s.rows; ++i)
      for (std::int64_t j = first; j < last; ++j)
        for (int c = 0; c < s.rank; ++c)
          q[j * s.rank + c] += m[i * s.columns + j] * p[i * s.rank + c];
  });
}

// M += sign * p q^T.
template <class T>
void add_product(ThreadPool& threads, LowRankSizes s, T sign, const T* p, const T* q, T* m) {
  threads.run(s.rows, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i)
      for (std::int64_t j = 0; j < s.columns; ++j) {
        T product = 0;
        for (int c = 0; c < s.rank; ++c) product += p[i * s.rank + c] * q[j * s.rank + c];
        m[i * s.columns + j] += sign * product;
      }
  });
}

// Returns true if a column of q is zero, or has an element that is not finite: it would stay so
// forever.
template <class T>
bool is_lost_column(const T* q, std::int64_t columns, int rank, int column) {
  bool zero = true, finite = true;
  for (std::int64_t j = 0; j < columns; ++j) {
    zero = zero && q[j * rank + column] == 0;
    finite = finite && std::isfinite(q[j * rank + column]);
  }
  return zero || !finite;
}

// Makes the columns of p orthonormal (modified Gram-Schmidt, each column orthogonalized against the
// others twice); a column in the span of the ones before becomes zero.
template <class T>
void orthonormalize(T* p, std::int64_t rows, int rank) {
  const auto dot = [=](int a, int b) {
    double lanes[ops::kSumLanes] = {};
    for (std::int64_t i = 0; i < rows; ++i)
      lanes[i % ops::kSumLanes] +=
          static_cast<double>(p[i * rank + a]) * static_cast<double>(p[i * rank + b]);
    return ops::lane_total(lanes);
  };
  for (int c = 0; c < rank; ++c) {
    const double before = std::sqrt(dot(c, c));
    for (int pass = 0; pass < 2; ++pass)
      for (int b = 0; b < c; ++b) {
        const double part = dot(b, c);
        for (std::int64_t i = 0; i < rows; ++i)
          p[i * rank + c] -= static_cast<T>(part * static_cast<double>(p[i * rank + b]));
      }
    const double norm = std::sqrt(dot(c, c));
    const bool spanned = ops::low_rank_spanned<T>(norm, before);
    for (std::int64_t i = 0; i < rows; ++i)
      p[i * rank + c] =
          spanned ? T(0) : static_cast<T>(static_cast<double>(p[i * rank + c]) / norm);
  }
}

}  // namespace engine
