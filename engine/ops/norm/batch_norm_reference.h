// What batch normalisation means: plain loops over [rows, channels], sums in f64, one thread.
// Contract: batch_norm.h.
#pragma once

#include <cstdint>

#include "engine/ops/common/kernel_context.h"

namespace engine::ops::reference {

template <class T>
void batch_norm_statistics(const T* x, std::int64_t rows, std::int64_t channels, double* sums) {
  double* mean = sums;
  double* squares = sums + channels;
  for (std::int64_t c = 0; c < 2 * channels; ++c) sums[c] = 0;
  if (rows == 0) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < channels; ++c) mean[c] += x[r * channels + c];
  }
  for (std::int64_t c = 0; c < channels; ++c) mean[c] /= static_cast<double>(rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const double difference = x[r * channels + c] - mean[c];
      squares[c] += difference * difference;
    }
  }
}

// `residual` may be nullptr.
template <class T>
void batch_norm_normalize(const T* x, const T* mean, const T* inverse_std, const T* gamma,
                          const T* beta, const T* residual, bool relu, std::int64_t rows,
                          std::int64_t channels, T* y) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t i = r * channels + c;
      T value = (x[i] - mean[c]) * (inverse_std[c] * gamma[c]) + beta[c];
      if (residual != nullptr) value += residual[i];
      y[i] = relu && value < 0 ? T{0} : value;
    }
  }
}

// The gradient behind a fused ReLU.
template <class T>
T masked(const T* y, const T* dy, bool relu, std::int64_t i) {
  return !relu || y[i] > 0 ? dy[i] : T{0};
}

// `y` is read only with `relu`; `dresidual` may be nullptr.
template <class T>
void batch_norm_backward_sums(const T* x, const T* y, bool relu, const T* dy, const T* mean,
                              const T* inverse_std, std::int64_t rows, std::int64_t channels,
                              double* sums, T* dresidual, Write write_residual) {
  for (std::int64_t c = 0; c < 2 * channels; ++c) sums[c] = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t i = r * channels + c;
      const T g = masked(y, dy, relu, i);
      sums[c] += g;
      sums[channels + c] += double{g} * ((x[i] - mean[c]) * inverse_std[c]);
      if (dresidual != nullptr) dresidual[i] = write_residual == Write::kAdd ? dresidual[i] + g : g;
    }
  }
}

template <class T>
void batch_norm_backward_data(const T* x, const T* y, bool relu, const T* dy, const T* mean,
                              const T* inverse_std, const T* gamma, const double* sums,
                              std::int64_t group_rows, std::int64_t rows, std::int64_t channels,
                              T* dx, Write write) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t i = r * channels + c;
      const double normalized = (x[i] - mean[c]) * inverse_std[c];
      const double mean_g = sums[c] / static_cast<double>(group_rows);
      const double mean_gx = sums[channels + c] / static_cast<double>(group_rows);
      const T gradient = static_cast<T>(double{gamma[c]} * inverse_std[c] *
                                        (masked(y, dy, relu, i) - mean_g - normalized * mean_gx));
      dx[i] = write == Write::kAdd ? dx[i] + gradient : gradient;
    }
  }
}

}  // namespace engine::ops::reference
