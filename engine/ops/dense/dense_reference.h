// Implements the dense layer in plain loops for any scalar type, as the reference for tests.
#pragma once

#include <cstdint>

#include "engine/ops/dense/dense.h"

namespace engine::ops {

// Returns the sum of a[i] * b[i], with eight interleaved sums: as exact as one, and several times
// faster.
template <class T>
T dot_reference(const T* a, const T* b, std::int64_t count) {
  T sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (; i < count; ++i) sums[i % 8] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

namespace reference {

template <class T>
void dense_forward(const DenseForward& o) {
  const std::int64_t n = o.x.shape[0], in = o.x.shape[1], out = o.weight.shape[0];
  const T *x = o.x.as<T>(), *weight = o.weight.as<T>(), *bias = o.bias.as<T>();
  T* y = o.y.as<T>();
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t c = 0; c < out; ++c) {
      const T value = dot_reference(x + i * in, weight + c * in, in) + (bias ? bias[c] : T(0));
      y[i * out + c] = o.relu && value < T(0) ? T(0) : value;
    }
  }
}

template <class T>
void dense_backward_data(const DenseBackwardData& o) {
  const std::int64_t n = o.dx.shape[0], in = o.dx.shape[1], out = o.weight.shape[0];
  const T *dy = o.dy.as<T>(), *weight = o.weight.as<T>();
  for (std::int64_t i = 0; i < n; ++i) {
    T* row = o.dx.as<T>() + i * in;
    if (o.write == Write::kOverwrite)
      for (std::int64_t k = 0; k < in; ++k) row[k] = T(0);
    for (std::int64_t c = 0; c < out; ++c) {
      const T factor = dy[i * out + c];
      for (std::int64_t k = 0; k < in; ++k) row[k] += factor * weight[c * in + k];
    }
  }
}

template <class T>
void dense_backward_weights(const DenseBackwardWeights& o) {
  const std::int64_t n = o.x.shape[0], in = o.x.shape[1], out = o.dy.shape[1];
  const T *x = o.x.as<T>(), *dy = o.dy.as<T>();
  T* dbias = o.dbias.as<T>();
  for (std::int64_t c = 0; c < out; ++c) {
    T* row = o.dweight.as<T>() + c * in;
    T sum = T(0);
    if (o.write == Write::kOverwrite)
      for (std::int64_t k = 0; k < in; ++k) row[k] = T(0);
    for (std::int64_t i = 0; i < n; ++i) {
      const T factor = dy[i * out + c];
      sum += factor;
      for (std::int64_t k = 0; k < in; ++k) row[k] += factor * x[i * in + k];
    }
    if (dbias) dbias[c] = o.write == Write::kAdd ? dbias[c] + sum : sum;
  }
}

}  // namespace reference
}  // namespace engine::ops
