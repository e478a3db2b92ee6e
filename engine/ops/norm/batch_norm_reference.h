// Implements batch normalization in plain loops over [rows, channels] with sums in f64 on one
// thread, as the reference for tests. Contract: batch_norm.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/ops/common/rows.h"
#include "engine/ops/norm/batch_norm.h"

namespace engine::ops::reference {

template <class T>
void batch_norm_statistics(const TensorView& x_operand, const TensorView& sums_operand) {
  const auto [rows, channels] = row_sizes(x_operand);
  const T* x = x_operand.as<T>();
  double *mean = sums_operand.as<double>(), *squares = mean + channels;
  for (std::int64_t c = 0; c < channels; ++c) mean[c] = squares[c] = 0;
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

template <class T>
void batch_norm_finish_statistics(const BatchNormFinishStatistics& o) {
  const std::int64_t channels = o.mean.count();
  const double* sums = o.sums.as<double>();
  T *mean = o.mean.as<T>(), *inverse_std = o.inverse_std.as<T>();
  T *running_mean = o.running_mean.as<T>(), *running_var = o.running_var.as<T>();
  const double biased = 1.0 / static_cast<double>(o.rows > 1 ? o.rows : 1);
  const double unbiased = o.rows > 1 ? 1.0 / static_cast<double>(o.rows - 1) : 0;
  for (std::int64_t c = 0; c < channels; ++c) {
    const double m = o.rows > 0 ? sums[c] : 0, squares = o.rows > 0 ? sums[channels + c] : 0;
    mean[c] = static_cast<T>(m);
    inverse_std[c] = static_cast<T>(1 / std::sqrt(squares * biased + o.eps));
    if (o.rows == 0) continue;
    if (running_mean != nullptr)
      running_mean[c] = static_cast<T>((1 - o.momentum) * running_mean[c] + o.momentum * m);
    if (running_var != nullptr && o.rows > 1) {
      running_var[c] =
          static_cast<T>((1 - o.momentum) * running_var[c] + o.momentum * (squares * unbiased));
    }
  }
}

template <class T>
void batch_norm_from_running(const BatchNormFromRunning& o) {
  const T *running_mean = o.running_mean.as<T>(), *running_var = o.running_var.as<T>();
  T *mean = o.mean.as<T>(), *inverse_std = o.inverse_std.as<T>();
  for (std::int64_t c = 0; c < o.mean.count(); ++c) {
    mean[c] = running_mean[c];
    inverse_std[c] = static_cast<T>(1 / std::sqrt(running_var[c] + o.eps));
  }
}

template <class T>
void batch_norm_normalize(const BatchNormNormalize& o) {
  const auto [rows, channels] = row_sizes(o.x);
  const T *x = o.x.as<T>(), *mean = o.mean.as<T>(), *inverse_std = o.inverse_std.as<T>();
  const T *gamma = o.gamma.as<T>(), *beta = o.beta.as<T>(), *residual = o.residual.as<T>();
  T* y = o.y.as<T>();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t i = r * channels + c;
      T value = (x[i] - mean[c]) * (inverse_std[c] * gamma[c]) + beta[c];
      if (residual != nullptr) value += residual[i];
      y[i] = o.relu && value < 0 ? T{0} : value;
    }
  }
}

// The gradient before a fused ReLU; without one y is nullptr.
template <class T>
T masked(const T* y, const T* dy, std::int64_t i) {
  return y == nullptr || y[i] > 0 ? dy[i] : T{0};
}

template <class T>
void batch_norm_backward_sums(const BatchNormBackwardSums& o) {
  const auto [rows, channels] = row_sizes(o.x);
  const T *x = o.x.as<T>(), *y = o.y.as<T>(), *dy = o.dy.as<T>();
  const T *mean = o.mean.as<T>(), *inverse_std = o.inverse_std.as<T>();
  double* sums = o.sums.as<double>();
  T* dresidual = o.dresidual.as<T>();
  for (std::int64_t c = 0; c < 2 * channels; ++c) sums[c] = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t i = r * channels + c;
      const T g = masked(y, dy, i);
      sums[c] += g;
      sums[channels + c] += double{g} * ((x[i] - mean[c]) * inverse_std[c]);
      if (dresidual != nullptr)
        dresidual[i] = o.write_residual == Write::kAdd ? dresidual[i] + g : g;
    }
  }
}

template <class T>
void batch_norm_backward_parameters(const BatchNormBackwardParameters& o) {
  const std::int64_t channels = o.dgamma.count();
  const double* sums = o.sums.as<double>();
  T *dgamma = o.dgamma.as<T>(), *dbeta = o.dbeta.as<T>();
  for (std::int64_t c = 0; c < channels; ++c) {
    const T gamma = static_cast<T>(sums[channels + c]), beta = static_cast<T>(sums[c]);
    dgamma[c] = o.write == Write::kAdd ? dgamma[c] + gamma : gamma;
    dbeta[c] = o.write == Write::kAdd ? dbeta[c] + beta : beta;
  }
}

template <class T>
void batch_norm_backward_data(const BatchNormBackwardData& o) {
  const auto [rows, channels] = row_sizes(o.x);
  const T *x = o.x.as<T>(), *y = o.y.as<T>(), *dy = o.dy.as<T>(), *gamma = o.gamma.as<T>();
  const T *mean = o.mean.as<T>(), *inverse_std = o.inverse_std.as<T>();
  const double *sums = o.sums.as<double>(), group_rows = static_cast<double>(o.rows);
  T* dx = o.dx.as<T>();
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t i = r * channels + c;
      const double normalized = (x[i] - mean[c]) * inverse_std[c];
      const double mean_g = sums[c] / group_rows, mean_gx = sums[channels + c] / group_rows;
      const T gradient = static_cast<T>(double{gamma[c]} * inverse_std[c] *
                                        (masked(y, dy, i) - mean_g - normalized * mean_gx));
      dx[i] = o.write == Write::kAdd ? dx[i] + gradient : gradient;
    }
  }
}

}  // namespace engine::ops::reference
