// Implements convolution in plain loops for any scalar type, as the reference for tests.
#pragma once

#include <cstdint>

#include "engine/ops/conv2d/conv2d_operands.h"
#include "engine/ops/dense/dense_reference.h"

namespace engine::ops::reference {

// Calls body(oy, ox, iy, ix) for every output place and the input place that tap (ky, kx) reads for
// it, except in the padding.
template <class Body>
void for_each_place(const Conv2dGeometry& g, std::int64_t ky, std::int64_t kx, Body body) {
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
void conv2d_forward(const Conv2dForward& o, std::int64_t first, std::int64_t last) {
  const Conv2dGeometry& g = o.geometry;
  const T *x = o.x.as<T>(), *weight = o.weight.as<T>(), *bias = o.bias.as<T>();
  T* y = o.y.as<T>();
  const std::int64_t in = g.in_channels, out = g.out_channels, places = g.out_h() * g.out_w(),
                     ins = in / g.groups, outs = out / g.groups;
  for (std::int64_t image = first; image < last; ++image) {
    const T* from = x + image * g.in_h * g.in_w * in;
    T* to = y + image * places * out;
    for (std::int64_t e = 0; e < places * out; ++e) to[e] = bias ? bias[e % out] : T(0);
    for (std::int64_t ky = 0; ky < g.kernel_h; ++ky) {
      for (std::int64_t kx = 0; kx < g.kernel_w; ++kx) {
        const T* taps = weight + (ky * g.kernel_w + kx) * ins * out;
        for_each_place(g, ky, kx,
                       [&](std::int64_t oy, std::int64_t ox, std::int64_t iy, std::int64_t ix) {
                         T* sums = to + (oy * g.out_w() + ox) * out;
                         for (std::int64_t i = 0; i < in; ++i) {
                           const T value = from[(iy * g.in_w + ix) * in + i];
                           const std::int64_t group = i / ins;
                           for (std::int64_t c = group * outs; c < (group + 1) * outs; ++c)
                             sums[c] += value * taps[i % ins * out + c];
                         }
                       });
      }
    }
  }
}

// For images [first, last): dx[iy, ix, i] = sum over the outputs of i's group that read it of
// dy[oy, ox, o] * weight[ky, kx, i % (in / groups), o].
template <class T>
void conv2d_backward_data(const Conv2dBackwardData& o, std::int64_t first, std::int64_t last) {
  const Conv2dGeometry& g = o.geometry;
  const T *dy = o.dy.as<T>(), *weight = o.weight.as<T>();
  T* dx = o.dx.as<T>();
  const std::int64_t in = g.in_channels, out = g.out_channels, places = g.in_h * g.in_w,
                     ins = in / g.groups, outs = out / g.groups;
  for (std::int64_t image = first; image < last; ++image) {
    const T* from = dy + image * g.out_h() * g.out_w() * out;
    T* to = dx + image * places * in;
    if (o.write == Write::kOverwrite)
      for (std::int64_t e = 0; e < places * in; ++e) to[e] = T(0);
    for (std::int64_t ky = 0; ky < g.kernel_h; ++ky) {
      for (std::int64_t kx = 0; kx < g.kernel_w; ++kx) {
        const T* taps = weight + (ky * g.kernel_w + kx) * ins * out;
        for_each_place(
            g, ky, kx, [&](std::int64_t oy, std::int64_t ox, std::int64_t iy, std::int64_t ix) {
              for (std::int64_t i = 0; i < in; ++i) {
                const std::int64_t c = i / ins * outs;
                to[(iy * g.in_w + ix) * in + i] += dot_reference(
                    from + (oy * g.out_w() + ox) * out + c, taps + i % ins * out + c, outs);
              }
            });
      }
    }
  }
}

// For rows [first, last) of dweight, viewed as [kh * kw * in / groups, out]: the sum over images
// and places of x * dy.
template <class T>
void conv2d_backward_weights(const Conv2dBackwardWeights& o, std::int64_t first,
                             std::int64_t last) {
  const Conv2dGeometry& g = o.geometry;
  const std::int64_t n = o.x.shape[0];
  const T *x = o.x.as<T>(), *dy = o.dy.as<T>();
  T* dweight = o.dweight.as<T>();
  const std::int64_t in = g.in_channels, out = g.out_channels, ins = in / g.groups,
                     outs = out / g.groups;
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t i = row % ins, kx = row / ins % g.kernel_w, ky = row / ins / g.kernel_w;
    T* sums = dweight + row * out;
    if (o.write == Write::kOverwrite)
      for (std::int64_t c = 0; c < out; ++c) sums[c] = T(0);
    for (std::int64_t image = 0; image < n; ++image) {
      const T* from = x + image * g.in_h * g.in_w * in;
      const T* gradient = dy + image * g.out_h() * g.out_w() * out;
      for_each_place(g, ky, kx,
                     [&](std::int64_t oy, std::int64_t ox, std::int64_t iy, std::int64_t ix) {
                       const T* values = from + (iy * g.in_w + ix) * in + i;
                       const T* gradients = gradient + (oy * g.out_w() + ox) * out;
                       for (std::int64_t group = 0; group < g.groups; ++group)
                         for (std::int64_t c = group * outs; c < (group + 1) * outs; ++c)
                           sums[c] += values[group * ins] * gradients[c];
                     });
    }
  }
}

// dbias, if present, becomes the sum of dy over images and places.
template <class T>
void conv2d_backward_bias(const Conv2dBackwardWeights& o) {
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
