// Implements self-attention in plain loops over one head of one sample, as the reference for
// tests. Contract: attention.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/core/random.h"
#include "engine/ops/attention/attention.h"

namespace engine::ops::reference {

// One head of one sample. Rows of q, k, v and their gradients have `size` elements at a distance of
// `stride`; rows of y and dy have `size` elements at a distance of `width`.
template <class T>
struct AttentionHead {
  std::int64_t t, size;
  std::int64_t ahead;  // the number of keys after its own that a query may see
  std::int64_t width, stride;
  const T *q, *k, *v;
  T* lse;  // [t]; nullptr: not stored
  double rate;
  std::uint64_t key, epoch,
      first_block;  // first Philox block of row 0; each row has ceil(t / 4) blocks

  // The number of keys that query i sees.
  std::int64_t seen(std::int64_t i) const { return i + 1 + ahead < t ? i + 1 + ahead : t; }
  T score(std::int64_t i, std::int64_t j) const {
    T sum = 0;
    for (std::int64_t c = 0; c < size; ++c) sum += q[i * stride + c] * k[j * stride + c];
    return sum / std::sqrt(static_cast<T>(size));
  }
  T keep(std::int64_t i, std::int64_t j) const {
    if (rate == 0) return 1;
    const auto low = first_block + static_cast<std::uint64_t>(i * ((t + 3) / 4) + j / 4);
    const std::uint32_t word = philox(key, epoch, low)[static_cast<std::size_t>(j % 4)];
    return uniform_float(word) >= rate ? static_cast<T>(1 / (1 - rate)) : T{0};
  }
};

// Makes two passes over the keys, the first for the largest score, so that no row of scores is
// stored.
template <class T>
void attention_forward(const AttentionHead<T>& head, T* y) {
  for (std::int64_t i = 0; i < head.t; ++i, y += head.width) {
    T largest = head.score(i, 0), sum = 0;
    for (std::int64_t j = 1; j < head.seen(i); ++j) largest = std::fmax(largest, head.score(i, j));
    for (std::int64_t c = 0; c < head.size; ++c) y[c] = 0;
    for (std::int64_t j = 0; j < head.seen(i); ++j) {
      const T p = std::exp(head.score(i, j) - largest), kept = p * head.keep(i, j);
      sum += p;
      for (std::int64_t c = 0; c < head.size; ++c) y[c] += kept * head.v[j * head.stride + c];
    }
    for (std::int64_t c = 0; c < head.size; ++c) y[c] /= sum;
    if (head.lse != nullptr) head.lse[i] = largest + std::log(sum);
  }
}

// Adds to dq, dk and dv.
template <class T>
void attention_backward(const AttentionHead<T>& head, const T* y, const T* dy, T* dq, T* dk,
                        T* dv) {
  const T scale = 1 / std::sqrt(static_cast<T>(head.size));
  for (std::int64_t i = 0; i < head.t; ++i, y += head.width, dy += head.width) {
    T weight = 0;  // sum over j of p_ij times its gradient
    for (std::int64_t c = 0; c < head.size; ++c) weight += dy[c] * y[c];
    for (std::int64_t j = 0; j < head.seen(i); ++j) {
      const std::int64_t row_i = i * head.stride, row_j = j * head.stride;
      const T p = std::exp(head.score(i, j) - head.lse[i]), keep = head.keep(i, j);
      T dp = 0;
      for (std::int64_t c = 0; c < head.size; ++c) dp += dy[c] * head.v[row_j + c];
      const T ds = p * (keep * dp - weight) * scale;
      for (std::int64_t c = 0; c < head.size; ++c) {
        dq[row_i + c] += ds * head.k[row_j + c];
        dk[row_j + c] += ds * head.q[row_i + c];
        dv[row_j + c] += p * keep * dy[c];
      }
    }
  }
}

}  // namespace engine::ops::reference
