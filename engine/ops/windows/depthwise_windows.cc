// On the CPU, threads share the pixels, or the places of the weights. The weights are turned first,
// so that adjacent channels have adjacent numbers.
#include "engine/ops/windows/depthwise_windows.h"

#include <algorithm>

#include "engine/core/arena.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/general/elements.h"
#include "engine/ops/windows/depthwise_windows_cuda.h"

namespace engine::ops {
namespace {

constexpr std::int64_t kBlock = 64;  // channels: sums that stay in registers and the L1 cache

// `each` outputs read one channel of x.
struct Geometry {
  explicit Geometry(const WindowConv2d& conv)
      : rows(conv.window.rows),
        columns(conv.window.columns),
        in(conv.window.channels),
        out(conv.out_channels),
        each(out / in),
        places(conv.window.places()) {}

  WindowAxis rows, columns;
  std::int64_t in, out, each, places;
};

bool is_within(std::int64_t place, const WindowAxis& axis) {
  return place >= 0 && place < axis.extent;
}
std::int64_t place_of(const WindowAxis& axis, std::int64_t window, std::int64_t k) {
  return window * axis.stride - axis.before + k * axis.dilation;
}
// [out, places] -> [places, out], in the context's scratch.
template <class N>
const N* turned_weight(KernelContext& context, const TensorView& weight, const Geometry& g) {
  N* turned = reinterpret_cast<N*>(context.scratch.data());
  const N* from = weight.as<N>();
  for (std::int64_t o = 0; o < g.out; ++o)
    for (std::int64_t k = 0; k < g.places; ++k) turned[k * g.out + o] = from[o * g.places + k];
  return turned;
}

template <class T>
void put_sums(const Computed<T>* sums, std::int64_t count, Write write, T* to) {
  for (std::int64_t c = 0; c < count; ++c)
    to[c] = stored_as<T>(write == Write::kAdd ? computed(to[c]) + sums[c] : sums[c]);
}

// Adds the products of `count` outputs from `first` on with the channels of x that they read.
template <class T>
void add_products(const T* x, const Computed<T>* weight, std::int64_t first, std::int64_t count,
                  std::int64_t each, Computed<T>* sums) {
  if (each == 1)
    for (std::int64_t c = 0; c < count; ++c) sums[c] += computed(x[first + c]) * weight[first + c];
  else
    for (std::int64_t c = 0; c < count; ++c)
      sums[c] += computed(x[(first + c) / each]) * weight[first + c];
}

template <class T>
void forward_pixel(const WindowConv2dForward& o, const Geometry& g, const Computed<T>* weight,
                   std::int64_t pixel) {
  const std::int64_t line = pixel / g.columns.count(), column = pixel % g.columns.count(),
                     image = line / g.rows.count(), row = line % g.rows.count();
  for (std::int64_t first = 0; first < g.out; first += kBlock) {
    const std::int64_t count = std::min(kBlock, g.out - first);
    Computed<T> sums[kBlock] = {};
    if (o.bias) std::copy_n(o.bias.as<Computed<T>>() + first, count, sums);
    for (std::int64_t k = 0; k < g.places; ++k) {
      const std::int64_t y = place_of(g.rows, row, k / g.columns.kernel),
                         x = place_of(g.columns, column, k % g.columns.kernel);
      if (!is_within(y, g.rows) || !is_within(x, g.columns)) continue;
      add_products<T>(o.x.as<T>() + ((image * g.rows.extent + y) * g.columns.extent + x) * g.in,
                      weight + k * g.out, first, count, g.each, sums);
    }
    put_sums<T>(sums, count, o.write, o.y.as<T>() + pixel * g.out + first);
  }
}

template <class T>
void data_pixel(const WindowConv2dBackwardData& o, const Geometry& g, const Computed<T>* weight,
                std::int64_t pixel) {
  const std::int64_t line = pixel / g.columns.extent, column = pixel % g.columns.extent,
                     image = line / g.rows.extent, row = line % g.rows.extent;
  for (std::int64_t first = 0; first < g.in; first += kBlock) {
    const std::int64_t count = std::min(kBlock, g.in - first);
    Computed<T> sums[kBlock] = {};
    for (std::int64_t k = 0; k < g.places; ++k) {
      const std::int64_t y = g.rows.window_of(row, k / g.columns.kernel),
                         x = g.columns.window_of(column, k % g.columns.kernel);
      if (y < 0 || x < 0) continue;
      const T* dy = o.dy.as<T>() + ((image * g.rows.count() + y) * g.columns.count() + x) * g.out +
                    first * g.each;
      const Computed<T>* taps = weight + k * g.out + first * g.each;
      if (g.each == 1)
        for (std::int64_t c = 0; c < count; ++c) sums[c] += computed(dy[c]) * taps[c];
      else
        for (std::int64_t c = 0; c < count * g.each; ++c)
          sums[c / g.each] += computed(dy[c]) * taps[c];
    }
    put_sums<T>(sums, count, o.write, o.dx.as<T>() + pixel * g.in + first);
  }
}

// The pixels of a line of y that read x at place `k`; their sums are added to `totals`.
template <class T>
void add_line(const WindowConv2dBackwardWeights& o, const Geometry& g, std::int64_t line,
              std::int64_t k, std::int64_t first, std::int64_t count, double* totals) {
  const std::int64_t image = line / g.rows.count(), width = g.columns.count(),
                     y = place_of(g.rows, line % g.rows.count(), k / g.columns.kernel);
  const bool is_bias = k == g.places;
  if (!is_bias && !is_within(y, g.rows)) return;
  Computed<T> sums[kBlock] = {};
  for (std::int64_t column = 0; column < width; ++column) {
    const T* dy = o.dy.as<T>() + (line * width + column) * g.out + first;
    if (is_bias) {
      for (std::int64_t c = 0; c < count; ++c) sums[c] += computed(dy[c]);
      continue;
    }
    const std::int64_t x = place_of(g.columns, column, k % g.columns.kernel);
    if (!is_within(x, g.columns)) continue;
    const T* from = o.x.as<T>() + ((image * g.rows.extent + y) * g.columns.extent + x) * g.in;
    if (g.each == 1)
      for (std::int64_t c = 0; c < count; ++c)
        sums[c] += computed(from[first + c]) * computed(dy[c]);
    else
      for (std::int64_t c = 0; c < count; ++c)
        sums[c] += computed(from[(first + c) / g.each]) * computed(dy[c]);
  }
  for (std::int64_t c = 0; c < count; ++c) totals[c] += static_cast<double>(sums[c]);
}

// The gradient of some channels at place `k`; that of the bias is after the last place.
template <class T>
void weight_block(const WindowConv2dBackwardWeights& o, const Geometry& g, std::int64_t k,
                  std::int64_t first) {
  using N = Computed<T>;
  const std::int64_t count = std::min(kBlock, g.out - first),
                     lines = o.dy.shape[0] * g.rows.count();
  double totals[kBlock] = {};
  for (std::int64_t line = 0; line < lines; ++line)
    add_line<T>(o, g, line, k, first, count, totals);
  for (std::int64_t c = 0; c < count; ++c) {
    N* to = k == g.places ? o.dbias.as<N>() + first + c
                          : o.dweight.as<N>() + (first + c) * g.places + k;
    *to = (o.write == Write::kAdd ? *to : N{0}) + static_cast<N>(totals[c]);
  }
}

}  // namespace

std::size_t depthwise_windows_scratch_bytes(const WindowConv2d& conv, DType dtype,
                                            Device::Kind device) {
  if (device == Device::Kind::kCuda) return 0;
  const std::int64_t count = conv.window.places() * conv.out_channels;
  return align_up(static_cast<std::size_t>(count) * size_of(wide_dtype(dtype)));
}

void depthwise_windows_forward(KernelContext& context, const WindowConv2dForward& o) {
  if (o.y.count() == 0) return;
  const auto call = [&]<class T>(T) {
    const Geometry g(o.conv);
    const auto* weight = turned_weight<Computed<T>>(context, o.weight, g);
    context.threads->run(o.y.count() / g.out, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) forward_pixel<T>(o, g, weight, i);
    });
  };
  dispatch(
      context, o.x.dtype, [&] { call(double{}); }, [&] { with_cpu_storage(o.x.dtype, call); },
      [&] { cuda::depthwise_windows_forward(context, o); });
}

void depthwise_windows_backward_data(KernelContext& context, const WindowConv2dBackwardData& o) {
  if (o.dx.count() == 0) return;
  const auto call = [&]<class T>(T) {
    const Geometry g(o.conv);
    const auto* weight = turned_weight<Computed<T>>(context, o.weight, g);
    context.threads->run(o.dx.count() / g.in, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) data_pixel<T>(o, g, weight, i);
    });
  };
  dispatch(
      context, o.dx.dtype, [&] { call(double{}); }, [&] { with_cpu_storage(o.dx.dtype, call); },
      [&] { cuda::depthwise_windows_backward_data(context, o); });
}

void depthwise_windows_backward_weights(KernelContext& context,
                                        const WindowConv2dBackwardWeights& o) {
  const auto call = [&]<class T>(T) {
    const Geometry g(o.conv);
    const std::int64_t blocks = (g.out + kBlock - 1) / kBlock, sums = g.places + (o.dbias ? 1 : 0);
    context.threads->run(blocks * sums, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i)
        weight_block<T>(o, g, i / blocks, i % blocks * kBlock);
    });
  };
  dispatch(
      context, o.x.dtype, [&] { call(double{}); }, [&] { with_cpu_storage(o.x.dtype, call); },
      [&] { cuda::depthwise_windows_backward_weights(context, o); });
}

}  // namespace engine::ops
