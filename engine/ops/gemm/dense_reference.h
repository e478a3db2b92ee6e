// What the dense layer means, in any scalar type: plain loops. What the fast kernels are tested
// against.
#pragma once

#include <cstdint>

#include "engine/ops/common/kernel_context.h"

namespace engine::ops {

// Sum of a[i] * b[i]. Eight interleaved sums: as exact as one, and several times faster.
template <class T>
T dot_reference(const T* a, const T* b, std::int64_t count) {
  T sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (; i < count; ++i) sums[i % 8] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Rows [first, last) of y = relu?(x W^T + b). x [n, in], weight [out, in], bias [out] or nullptr, y
// [n, out].
template <class T>
void dense_forward_reference(std::int64_t first, std::int64_t last, std::int64_t in,
                             std::int64_t out, const T* x, const T* weight, const T* bias,
                             bool relu, T* y) {
  for (std::int64_t i = first; i < last; ++i) {
    for (std::int64_t o = 0; o < out; ++o) {
      const T value = dot_reference(x + i * in, weight + o * in, in) + (bias ? bias[o] : T(0));
      y[i * out + o] = relu && value < T(0) ? T(0) : value;
    }
  }
}

// Rows [first, last) of dx = dy W.
template <class T>
void dense_backward_data_reference(std::int64_t first, std::int64_t last, std::int64_t in,
                                   std::int64_t out, const T* dy, const T* weight, T* dx,
                                   Write write) {
  for (std::int64_t i = first; i < last; ++i) {
    T* row = dx + i * in;
    if (write == Write::kOverwrite)
      for (std::int64_t k = 0; k < in; ++k) row[k] = T(0);
    for (std::int64_t o = 0; o < out; ++o) {
      const T factor = dy[i * out + o];
      for (std::int64_t k = 0; k < in; ++k) row[k] += factor * weight[o * in + k];
    }
  }
}

// Rows [first, last) of dweight = dy^T x, and of dbias = column sums of dy (dbias may be nullptr).
template <class T>
void dense_backward_weights_reference(std::int64_t first, std::int64_t last, std::int64_t n,
                                      std::int64_t in, std::int64_t out, const T* x, const T* dy,
                                      T* dweight, T* dbias, Write write) {
  for (std::int64_t o = first; o < last; ++o) {
    T* row = dweight + o * in;
    T sum = T(0);
    if (write == Write::kOverwrite)
      for (std::int64_t k = 0; k < in; ++k) row[k] = T(0);
    for (std::int64_t i = 0; i < n; ++i) {
      const T factor = dy[i * out + o];
      sum += factor;
      for (std::int64_t k = 0; k < in; ++k) row[k] += factor * x[i * in + k];
    }
    if (dbias) dbias[o] = write == Write::kAdd ? dbias[o] + sum : sum;
  }
}

}  // namespace engine::ops
