// Implements layer normalization in plain loops, as the reference for tests. Contract:
// layer_norm.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/ops/common/rows.h"
#include "engine/ops/norm/layer_norm.h"

namespace engine::ops::reference {

template <class T>
void layer_norm_forward(const LayerNormForward& o) {
  const auto [rows, width] = row_sizes(o.x);
  const T *x = o.x.as<T>(), *gamma = o.gamma.as<T>(), *beta = o.beta.as<T>();
  T *y = o.y.as<T>(), *statistics = o.statistics.as<T>();
  for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
    T sum = 0, squares = 0;
    for (std::int64_t c = 0; c < width; ++c) sum += x[c];
    const T m = sum / static_cast<T>(width);
    for (std::int64_t c = 0; c < width; ++c) squares += (x[c] - m) * (x[c] - m);
    const T s = 1 / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(o.eps));
    for (std::int64_t c = 0; c < width; ++c) y[c] = (x[c] - m) * s * gamma[c] + beta[c];
    if (statistics != nullptr) statistics[r] = m, statistics[rows + r] = s;
  }
}

template <class T>
void layer_norm_backward_data(const LayerNormBackwardData& o) {
  const auto [rows, width] = row_sizes(o.x);
  const T *x = o.x.as<T>(), *gamma = o.gamma.as<T>(), *dy = o.dy.as<T>();
  const T *mean = o.statistics.as<T>(), *inverse_std = mean + rows;
  T* dx = o.dx.as<T>();
  for (std::int64_t r = 0; r < rows; ++r, x += width, dy += width, dx += width) {
    T sum = 0, products = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      sum += dy[c] * gamma[c];
      products += dy[c] * gamma[c] * (x[c] - mean[r]) * inverse_std[r];
    }
    for (std::int64_t c = 0; c < width; ++c) {
      const T xhat = (x[c] - mean[r]) * inverse_std[r];
      const T value =
          inverse_std[r] * (dy[c] * gamma[c] - (sum + xhat * products) / static_cast<T>(width));
      dx[c] = o.write == Write::kAdd ? dx[c] + value : value;
    }
  }
}

template <class T>
void layer_norm_backward_parameters(const LayerNormBackwardParameters& o) {
  const auto [rows, width] = row_sizes(o.x);
  const T *x = o.x.as<T>(), *dy = o.dy.as<T>();
  const T *mean = o.statistics.as<T>(), *inverse_std = mean + rows;
  T *dgamma = o.dgamma.as<T>(), *dbeta = o.dbeta.as<T>();
  for (std::int64_t c = 0; c < width; ++c) {
    T sum = 0, products = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      sum += dy[r * width + c];
      products += dy[r * width + c] * (x[r * width + c] - mean[r]) * inverse_std[r];
    }
    dgamma[c] = o.write == Write::kAdd ? dgamma[c] + products : products;
    dbeta[c] = o.write == Write::kAdd ? dbeta[c] + sum : sum;
  }
}

}  // namespace engine::ops::reference
