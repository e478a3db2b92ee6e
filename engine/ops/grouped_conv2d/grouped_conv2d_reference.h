// Implements grouped convolution in plain loops for any scalar type, as the reference for tests and
// for float64. Contract: grouped_conv2d.h.
#pragma once

#include <cstdint>

#include "engine/ops/grouped_conv2d/grouped_conv2d_operands.h"

namespace engine::ops::reference {

// Calls body(oy, ox, iy, ix) for every output place and the input place that tap (ky, kx) reads for
// it, except in the padding.
template <class Body>
void for_each_grouped_place(const GroupedConv2dGeometry& g, std::int64_t ky, std::int64_t kx,
                            Body body) {
  for (std::int64_t oy = 0; oy < g.out_h(); ++oy) {
    const std::int64_t iy = oy * g.stride + ky - g.padding;
    if (iy < 0 || iy >= g.in_h) continue;
    for (std::int64_t ox = 0; ox < g.out_w(); ++ox) {
      const std::int64_t ix = ox * g.stride + kx - g.padding;
      if (ix >= 0 && ix < g.in_w) body(oy, ox, iy, ix);
    }
  }
}

// For images [first, last): y[o] = bias[o] + sum over taps and channels i of o's group of
// x[iy, ix, group * in / groups + i] * weight[ky, kx, i, o].
template <class T>
void grouped_conv2d_forward(const GroupedConv2dForward& o, std::int64_t first, std::int64_t last) {
  const GroupedConv2dGeometry& g = o.geometry;
  const T *x = o.x.as<T>(), *weight = o.weight.as<T>(), *bias = o.bias.as<T>();
  T* y = o.y.as<T>();
  const std::int64_t in = g.in_channels, out = g.out_channels, places = g.out_h() * g.out_w(),
                     ins = in / g.groups, outs = out / g.groups;
  for (std::int64_t image = first; image < last; ++image) {
    const T* from = x + image * g.in_h * g.in_w * in;
    T* to = y + image * places * out;
    for (std::int64_t e = 0; e < places * out; ++e) to[e] = bias ? bias[e % out] : T(0);
    for (std::int64_t tap = 0; tap < g.kernel * g.kernel; ++tap) {
      const T* taps = weight + tap * ins * out;
      for_each_grouped_place(
          g, tap / g.kernel, tap % g.kernel,
          [&](std::int64_t oy, std::int64_t ox, std::int64_t iy, std::int64_t ix) {
            T* sums = to + (oy * g.out_w() + ox) * out;
            const T* values = from + (iy * g.in_w + ix) * in;
            for (std::int64_t group = 0; group < g.groups; ++group)
              for (std::int64_t i = 0; i < ins; ++i)
                for (std::int64_t c = group * outs; c < (group + 1) * outs; ++c)
                  sums[c] += values[group * ins + i] * taps[i * out + c];
          });
    }
  }
}

// For images [first, last): dx[iy, ix, i] = sum over the outputs of its group that read it of
// dy[oy, ox, o] * weight[ky, kx, i, o].
template <class T>
void grouped_conv2d_backward_data(const GroupedConv2dBackwardData& o, std::int64_t first,
                                  std::int64_t last) {
  const GroupedConv2dGeometry& g = o.geometry;
  const T *dy = o.dy.as<T>(), *weight = o.weight.as<T>();
  T* dx = o.dx.as<T>();
  const std::int64_t in = g.in_channels, out = g.out_channels, places = g.in_h * g.in_w,
                     ins = in / g.groups, outs = out / g.groups;
  for (std::int64_t image = first; image < last; ++image) {
    const T* from = dy + image * g.out_h() * g.out_w() * out;
    T* to = dx + image * places * in;
    if (o.write == Write::kOverwrite)
      for (std::int64_t e = 0; e < places * in; ++e) to[e] = T(0);
    for (std::int64_t tap = 0; tap < g.kernel * g.kernel; ++tap) {
      const T* taps = weight + tap * ins * out;
      for_each_grouped_place(
          g, tap / g.kernel, tap % g.kernel,
          [&](std::int64_t oy, std::int64_t ox, std::int64_t iy, std::int64_t ix) {
            T* sums = to + (iy * g.in_w + ix) * in;
            const T* gradients = from + (oy * g.out_w() + ox) * out;
            for (std::int64_t group = 0; group < g.groups; ++group)
              for (std::int64_t i = 0; i < ins; ++i) {
                T sum{0};
                for (std::int64_t c = group * outs; c < (group + 1) * outs; ++c)
                  sum += gradients[c] * taps[i * out + c];
                sums[group * ins + i] += sum;
              }
          });
    }
  }
}

// For taps [first, last) of dweight, viewed as [k * k, in / groups, out]: the sum over images and
// places of x * dy.
template <class T>
void grouped_conv2d_backward_weights(const GroupedConv2dBackwardWeights& o, std::int64_t first,
                                     std::int64_t last) {
  const GroupedConv2dGeometry& g = o.geometry;
  const std::int64_t n = o.x.shape[0];
  const T *x = o.x.as<T>(), *dy = o.dy.as<T>();
  const std::int64_t in = g.in_channels, out = g.out_channels, ins = in / g.groups,
                     outs = out / g.groups;
  for (std::int64_t tap = first; tap < last; ++tap) {
    T* sums = o.dweight.as<T>() + tap * ins * out;
    if (o.write == Write::kOverwrite)
      for (std::int64_t e = 0; e < ins * out; ++e) sums[e] = T(0);
    for (std::int64_t image = 0; image < n; ++image) {
      const T* from = x + image * g.in_h * g.in_w * in;
      const T* gradient = dy + image * g.out_h() * g.out_w() * out;
      for_each_grouped_place(
          g, tap / g.kernel, tap % g.kernel,
          [&](std::int64_t oy, std::int64_t ox, std::int64_t iy, std::int64_t ix) {
            const T* values = from + (iy * g.in_w + ix) * in;
            const T* gradients = gradient + (oy * g.out_w() + ox) * out;
            for (std::int64_t i = 0; i < ins; ++i)
              for (std::int64_t c = 0; c < out; ++c)
                sums[i * out + c] += values[c / outs * ins + i] * gradients[c];
          });
    }
  }
}

// dbias, if present, becomes the sum of dy over images and places.
template <class T>
void grouped_conv2d_backward_bias(const GroupedConv2dBackwardWeights& o) {
  if (!o.dbias) return;
  const std::int64_t out = o.geometry.out_channels, rows = o.dy.count() / out;
  const T* dy = o.dy.as<T>();
  T* dbias = o.dbias.as<T>();
  if (o.write == Write::kOverwrite)
    for (std::int64_t c = 0; c < out; ++c) dbias[c] = T(0);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t c = 0; c < out; ++c) dbias[c] += dy[row * out + c];
}

}  // namespace engine::ops::reference
