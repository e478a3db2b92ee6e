// Implements group normalization in plain loops, as the reference for tests. Contract:
// group_norm.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/ops/norm/group_norm.h"

namespace engine::ops::reference {

// Calls body(element, channel) for the elements of one group of one sample.
template <class Body>
void for_each_in_group(const GroupNormSizes& s, std::int64_t sample, std::int64_t group,
                       Body body) {
  for (std::int64_t p = sample * s.places; p < (sample + 1) * s.places; ++p)
    for (std::int64_t c = group * s.group_channels; c < (group + 1) * s.group_channels; ++c)
      body(p * s.channels + c, c);
}

template <class T>
void group_norm_forward(const GroupNormForward& o) {
  const GroupNormSizes s = group_norm_sizes(o.x, o.groups);
  const T *x = o.x.as<T>(), *gamma = o.gamma.as<T>(), *beta = o.beta.as<T>();
  T *y = o.y.as<T>(), *statistics = o.statistics.as<T>();
  const T count = static_cast<T>(s.places * s.group_channels);
  for (std::int64_t i = 0; i < s.n * s.groups; ++i) {
    const std::int64_t sample = i / s.groups, group = i % s.groups;
    T sum = 0, squares = 0;
    for_each_in_group(s, sample, group, [&](std::int64_t at, std::int64_t) { sum += x[at]; });
    const T mean = sum / count;
    for_each_in_group(s, sample, group, [&](std::int64_t at, std::int64_t) {
      squares += (x[at] - mean) * (x[at] - mean);
    });
    const T inverse = 1 / std::sqrt(squares / count + static_cast<T>(o.eps));
    for_each_in_group(s, sample, group, [&](std::int64_t at, std::int64_t c) {
      y[at] = (x[at] - mean) * inverse * gamma[c] + beta[c];
    });
    if (statistics != nullptr) statistics[i] = mean, statistics[s.n * s.groups + i] = inverse;
  }
}

// Adds to dgamma and dbeta.
template <class T>
void group_norm_backward_group(const GroupNormBackward& o, const GroupNormSizes& s,
                               std::int64_t i) {
  const T *x = o.x.as<T>(), *dy = o.dy.as<T>(), *gamma = o.gamma.as<T>();
  T *dgamma = o.dgamma.as<T>(), *dbeta = o.dbeta.as<T>(), *dx = o.dx.as<T>();
  const std::int64_t sample = i / s.groups, group = i % s.groups;
  const T mean = o.statistics.as<T>()[i], inverse = o.statistics.as<T>()[s.n * s.groups + i];
  const T count = static_cast<T>(s.places * s.group_channels);
  T sum = 0, products = 0;
  for_each_in_group(s, sample, group, [&](std::int64_t at, std::int64_t c) {
    const T xhat = (x[at] - mean) * inverse;
    sum += dy[at] * gamma[c];
    products += dy[at] * gamma[c] * xhat;
    dgamma[c] += dy[at] * xhat;
    dbeta[c] += dy[at];
  });
  if (dx == nullptr) return;
  for_each_in_group(s, sample, group, [&](std::int64_t at, std::int64_t c) {
    const T xhat = (x[at] - mean) * inverse;
    const T value = inverse * (dy[at] * gamma[c] - (sum + xhat * products) / count);
    dx[at] = o.dx_write == Write::kAdd ? dx[at] + value : value;
  });
}

template <class T>
void group_norm_backward(const GroupNormBackward& o) {
  const GroupNormSizes s = group_norm_sizes(o.x, o.statistics.shape[2]);
  for (std::int64_t c = 0; c < s.channels && o.parameter_write == Write::kOverwrite; ++c)
    o.dgamma.as<T>()[c] = o.dbeta.as<T>()[c] = 0;
  for (std::int64_t i = 0; i < s.n * s.groups; ++i) group_norm_backward_group<T>(o, s, i);
}

}  // namespace engine::ops::reference
