// Implements pooling in plain loops on one thread, as the reference for tests. Contract: pool2d.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/ops/pool/pool2d.h"

namespace engine::ops::reference {

// The part of a window that is inside the image, along one axis: places [first, last) of the
// window.
struct WindowRange {
  std::int64_t first, last;
};
inline WindowRange window_range(std::int64_t start, std::int64_t window, std::int64_t extent) {
  return {std::max<std::int64_t>(0, -start), std::min(window, extent - start)};
}

// Calls visit(output pixel, output row, output column) for each output pixel of the batch, in
// order.
template <class Visit>
void for_each_output(const Pool2dGeometry& g, std::int64_t n, Visit visit) {
  const std::int64_t out_h = g.out_h(), out_w = g.out_w();
  for (std::int64_t i = 0; i < n * out_h * out_w; ++i)
    visit(i, i / (out_h * out_w), i / out_w % out_h, i % out_w);
}

// Calls visit(place in the window, input pixel) for the places of one window inside the image, row
// by row.
template <class Visit>
void for_each_place(const Pool2dGeometry& g, std::int64_t sample, std::int64_t out_row,
                    std::int64_t out_column, Visit visit) {
  const std::int64_t top = out_row * g.stride - g.padding, left = out_column * g.stride - g.padding;
  const WindowRange rows = window_range(top, g.window, g.in_h),
                    columns = window_range(left, g.window, g.in_w);
  for (std::int64_t i = rows.first; i < rows.last; ++i) {
    for (std::int64_t j = columns.first; j < columns.last; ++j) {
      visit(i * g.window + j, (sample * g.in_h + top + i) * g.in_w + left + j);
    }
  }
}

// Returns the divisor of a window's sum: the number of its places inside the padded image.
inline std::int64_t window_area(const Pool2dGeometry& g, std::int64_t out_row,
                                std::int64_t out_column) {
  const auto places = [&g](std::int64_t out, std::int64_t extent) {
    return std::min(g.window, extent + 2 * g.padding - out * g.stride);
  };
  return places(out_row, g.in_h) * places(out_column, g.in_w);
}

// NaN is greater than everything, and the last NaN wins, as in PyTorch.
template <class T>
void max_pool2d_forward(const MaxPool2dForward& o) {
  const Pool2dGeometry& g = o.geometry;
  const T* x = o.x.as<T>();
  T* y = o.y.as<T>();
  auto* argmax = o.argmax.as<std::uint8_t>();
  for_each_output(
      g, o.x.shape[0],
      [&](std::int64_t out, std::int64_t sample, std::int64_t row, std::int64_t column) {
        for (std::int64_t c = 0; c < g.channels; ++c) {
          T best = 0;
          std::int64_t winner = -1;
          for_each_place(g, sample, row, column, [&](std::int64_t place, std::int64_t pixel) {
            const T value = x[pixel * g.channels + c];
            if (winner < 0 || value > best || std::isnan(value)) {
              best = value;
              winner = place;
            }
          });
          y[out * g.channels + c] = best;
          if (argmax != nullptr) argmax[out * g.channels + c] = static_cast<std::uint8_t>(winner);
        }
      });
}

template <class T>
void max_pool2d_backward(const MaxPool2dBackward& o) {
  const Pool2dGeometry& g = o.geometry;
  const T* dy = o.dy.as<T>();
  const auto* argmax = o.argmax.as<std::uint8_t>();
  T* dx = o.dx.as<T>();
  if (o.write == Write::kOverwrite) std::fill_n(dx, o.dx.count(), T{0});
  for_each_output(
      g, o.dx.shape[0],
      [&](std::int64_t out, std::int64_t sample, std::int64_t row, std::int64_t column) {
        for_each_place(g, sample, row, column, [&](std::int64_t place, std::int64_t pixel) {
          for (std::int64_t c = 0; c < g.channels; ++c) {
            if (argmax[out * g.channels + c] == place)
              dx[pixel * g.channels + c] += dy[out * g.channels + c];
          }
        });
      });
}

template <class T>
void average_pool2d_forward(const AveragePool2dForward& o) {
  const Pool2dGeometry& g = o.geometry;
  const T* x = o.x.as<T>();
  T* y = o.y.as<T>();
  for_each_output(
      g, o.x.shape[0],
      [&](std::int64_t out, std::int64_t sample, std::int64_t row, std::int64_t column) {
        const T area = static_cast<T>(window_area(g, row, column));
        for (std::int64_t c = 0; c < g.channels; ++c) {
          T sum = 0;
          for_each_place(g, sample, row, column, [&](std::int64_t, std::int64_t pixel) {
            sum += x[pixel * g.channels + c];
          });
          y[out * g.channels + c] = sum / area;
        }
      });
}

template <class T>
void average_pool2d_backward(const AveragePool2dBackward& o) {
  const Pool2dGeometry& g = o.geometry;
  const T* dy = o.dy.as<T>();
  T* dx = o.dx.as<T>();
  if (o.write == Write::kOverwrite) std::fill_n(dx, o.dx.count(), T{0});
  for_each_output(
      g, o.dx.shape[0],
      [&](std::int64_t out, std::int64_t sample, std::int64_t row, std::int64_t column) {
        const T area = static_cast<T>(window_area(g, row, column));
        for_each_place(g, sample, row, column, [&](std::int64_t, std::int64_t pixel) {
          for (std::int64_t c = 0; c < g.channels; ++c)
            dx[pixel * g.channels + c] += dy[out * g.channels + c] / area;
        });
      });
}

template <class T>
void global_average_pool_forward(std::int64_t n, std::int64_t pixels, std::int64_t channels,
                                 const T* x, T* y) {
  for (std::int64_t s = 0; s < n; ++s) {
    for (std::int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::int64_t p = 0; p < pixels; ++p) sum += x[(s * pixels + p) * channels + c];
      y[s * channels + c] = static_cast<T>(sum / static_cast<double>(pixels));
    }
  }
}

template <class T>
void global_average_pool_backward(std::int64_t n, std::int64_t pixels, std::int64_t channels,
                                  const T* dy, T* dx, Write write) {
  for (std::int64_t i = 0; i < n * pixels * channels; ++i) {
    const T gradient =
        dy[i / (pixels * channels) * channels + i % channels] / static_cast<T>(pixels);
    dx[i] = write == Write::kAdd ? dx[i] + gradient : gradient;
  }
}

}  // namespace engine::ops::reference
