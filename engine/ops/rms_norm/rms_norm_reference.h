// Implements RMS normalization in plain loops, as the reference for tests. Contract: rms_norm.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/ops/rms_norm/rms_norm_operands.h"

namespace engine::ops::reference {

template <class T>
void rms_norm_forward(const RmsNormForward& o, const RmsNormSizes& s) {
  const T* gamma = o.gamma.as<T>();
  T* inverse_rms = o.inverse_rms.as<T>();
  for (std::int64_t part = 0; part < s.rows * s.count; ++part) {
    const std::int64_t at = part / s.count * s.stride + s.first + part % s.count * s.width;
    const T* x = o.x.as<T>() + at;
    T *y = o.y.as<T>() + at, squares = 0;
    for (std::int64_t c = 0; c < s.width; ++c) squares += x[c] * x[c];
    const T inverse = 1 / std::sqrt(squares / static_cast<T>(s.width) + static_cast<T>(o.eps));
    for (std::int64_t c = 0; c < s.width; ++c) y[c] = x[c] * inverse * gamma[c];
    if (inverse_rms != nullptr) inverse_rms[part] = inverse;
  }
}

// Reads a row of dy for the gradient of gamma before dx, which may be dy, overwrites it.
template <class T>
void rms_norm_backward(const RmsNormBackward& o, const RmsNormSizes& s) {
  const T *gamma = o.gamma.as<T>(), *inverse_rms = o.inverse_rms.as<T>();
  T* dgamma = o.dgamma.as<T>();
  if (o.parameter_write == Write::kOverwrite)
    for (std::int64_t c = 0; c < s.width; ++c) dgamma[c] = 0;
  for (std::int64_t part = 0; part < s.rows * s.count; ++part) {
    const std::int64_t at = part / s.count * s.stride + s.first + part % s.count * s.width;
    const T *x = o.x.as<T>() + at, *dy = o.dy.as<T>() + at, inverse = inverse_rms[part];
    T products = 0;
    for (std::int64_t c = 0; c < s.width; ++c) {
      dgamma[c] += dy[c] * x[c] * inverse;
      products += dy[c] * gamma[c] * x[c] * inverse;
    }
    if (!o.dx) continue;
    T* dx = o.dx.as<T>() + at;
    for (std::int64_t c = 0; c < s.width; ++c) {
      const T value =
          inverse * (dy[c] * gamma[c] - x[c] * inverse * products / static_cast<T>(s.width));
      dx[c] = o.dx_write == Write::kAdd ? dx[c] + value : value;
    }
  }
}

}  // namespace engine::ops::reference
