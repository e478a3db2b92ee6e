// What layer normalisation means: plain loops. Contract: layer_norm.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/ops/common/kernel_context.h"

namespace engine::ops::reference {

// `mean` and `inverse_std` may both be nullptr.
template <class T>
void layer_norm_forward(const T* x, std::int64_t rows, std::int64_t width, const T* gamma,
                        const T* beta, double eps, T* y, T* mean, T* inverse_std) {
  for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
    T sum = 0, squares = 0;
    for (std::int64_t c = 0; c < width; ++c) sum += x[c];
    const T m = sum / static_cast<T>(width);
    for (std::int64_t c = 0; c < width; ++c) squares += (x[c] - m) * (x[c] - m);
    const T s = 1 / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(eps));
    for (std::int64_t c = 0; c < width; ++c) y[c] = (x[c] - m) * s * gamma[c] + beta[c];
    if (mean != nullptr) mean[r] = m, inverse_std[r] = s;
  }
}

template <class T>
void layer_norm_backward_data(const T* x, std::int64_t rows, std::int64_t width, const T* gamma,
                              const T* mean, const T* inverse_std, const T* dy, T* dx,
                              Write write) {
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
      dx[c] = write == Write::kAdd ? dx[c] + value : value;
    }
  }
}

template <class T>
void layer_norm_backward_parameters(const T* x, std::int64_t rows, std::int64_t width,
                                    const T* mean, const T* inverse_std, const T* dy, T* dgamma,
                                    T* dbeta, Write write) {
  for (std::int64_t c = 0; c < width; ++c) {
    T sum = 0, products = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      sum += dy[r * width + c];
      products += dy[r * width + c] * (x[r * width + c] - mean[r]) * inverse_std[r];
    }
    dgamma[c] = write == Write::kAdd ? dgamma[c] + products : products;
    dbeta[c] = write == Write::kAdd ? dbeta[c] + sum : sum;
  }
}

}  // namespace engine::ops::reference
