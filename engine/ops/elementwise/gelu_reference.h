// Implements GELU in plain loops, as the reference for tests. Contract: gelu.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "engine/ops/elementwise/gelu.h"

namespace engine::ops::reference {

// The value y and its derivative at x.
template <class T>
struct GeluValue {
  T value, slope;
};

template <class T>
GeluValue<T> gelu(T x, GeluKind kind) {
  if (kind == GeluKind::kTanh) {
    const T scale = std::sqrt(T{2} / std::numbers::pi_v<T>), cubic = T(0.044715);
    const T t = std::tanh(scale * (x + cubic * x * x * x));
    return {x / 2 * (1 + t), (1 + t) / 2 + x / 2 * (1 - t * t) * scale * (1 + 3 * cubic * x * x)};
  }
  const T below = std::erfc(-x / std::numbers::sqrt2_v<T>) / 2;
  const T density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<T>);
  return {x * below, below + x * density};
}

template <class T>
void gelu_forward(const T* x, std::int64_t count, GeluKind kind, T* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = gelu(x[i], kind).value;
}

template <class T>
void gelu_backward(const T* x, const T* dy, std::int64_t count, GeluKind kind, T* dx, Write write) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = dy[i] * gelu(x[i], kind).slope;
    dx[i] = write == Write::kAdd ? dx[i] + value : value;
  }
}

}  // namespace engine::ops::reference
