// One thread per element of y or x, which adds the places of its window, or of the windows that
// read it; adjacent threads have adjacent channels. For the weights, a block per place and 32
// channels: its warps share the pixels. Sums of weights are float64. Bound by bytes.
#include "engine/ops/windows/depthwise_windows_cuda.h"

#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/windows/window_lines.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

// `in` and `out` are the channels of x and of y; `each` outputs read one channel of x.
struct Geometry {
  WindowLine rows, columns;
  int in, out, each;
};
Geometry geometry_of(const WindowConv2d& conv) {
  const auto in = static_cast<int>(conv.window.channels), out = static_cast<int>(conv.out_channels);
  return {line_of(conv.window.rows), line_of(conv.window.columns), in, out, out / in};
}

// A pixel of a tensor of images of this height and width, and one of its channels.
struct Place {
  std::int64_t image;
  int row, column, channel;
};
__device__ __forceinline__ Place place_of(std::int64_t i, int height, int width, int channels) {
  const std::int64_t pixel = quotient(i, channels), line = quotient(pixel, width),
                     image = quotient(line, height);
  return {image, static_cast<int>(line - image * height), static_cast<int>(pixel - line * width),
          static_cast<int>(i - pixel * channels)};
}

__device__ __forceinline__ bool is_within(int place, int extent) {
  return place >= 0 && place < extent;
}

template <class T>
__device__ __forceinline__ void put_sum(Wide<T> sum, bool add, T* to) {
  *to = from_wide<T>(add ? to_wide(*to) + sum : sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_window(const T* x, const T* weight, const Wide<T>* bias, Geometry g, std::int64_t count,
               bool add, T* y) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const Place p = place_of(i, g.rows.windows, g.columns.windows, g.out);
    const T* taps = weight + std::int64_t{p.channel} * g.rows.kernel * g.columns.kernel;
    Wide<T> sum = bias != nullptr ? bias[p.channel] : 0;
    for (int ky = 0; ky < g.rows.kernel; ++ky) {
      const int row = p.row * g.rows.stride - g.rows.before + ky * g.rows.dilation;
      if (!is_within(row, g.rows.extent)) continue;
      const std::int64_t line = p.image * g.rows.extent + row;
      for (int kx = 0; kx < g.columns.kernel; ++kx) {
        const int column = p.column * g.columns.stride - g.columns.before + kx * g.columns.dilation;
        if (!is_within(column, g.columns.extent)) continue;
        sum += to_wide(x[(line * g.columns.extent + column) * g.in + p.channel / g.each]) *
               to_wide(taps[ky * g.columns.kernel + kx]);
      }
    }
    put_sum(sum, add, y + i);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_readers(const T* dy, const T* weight, Geometry g, std::int64_t count, bool add, T* dx) {
  const int places = g.rows.kernel * g.columns.kernel;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const Place p = place_of(i, g.rows.extent, g.columns.extent, g.in);
    Wide<T> sum = 0;
    for (int ky = 0; ky < g.rows.kernel; ++ky) {
      const int row = window_of(g.rows, p.row, ky);
      if (row < 0) continue;
      for (int kx = 0; kx < g.columns.kernel; ++kx) {
        const int column = window_of(g.columns, p.column, kx);
        if (column < 0) continue;
        const std::int64_t pixel = (p.image * g.rows.windows + row) * g.columns.windows + column;
        for (int k = p.channel * g.each; k < (p.channel + 1) * g.each; ++k)
          sum += to_wide(dy[pixel * g.out + k]) *
                 to_wide(weight[std::int64_t{k} * places + ky * g.columns.kernel + kx]);
      }
    }
    put_sum(sum, add, dx + i);
  }
}

// Each block adds all pixels for one place and 32 channels; the place after the last one is the
// bias.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_pixels(const T* x, const T* dy, Geometry g, std::int64_t pixels, bool add, Wide<T>* dweight,
               Wide<T>* dbias) {
  double* partial = &block_shared<double>();
  const int places = g.rows.kernel * g.columns.kernel, tiles = (g.out + kWarp - 1) / kWarp,
            place = static_cast<int>(blockIdx.x) / tiles,
            channel = (static_cast<int>(blockIdx.x) - place * tiles) * kWarp + lane_index(),
            ky = place / g.columns.kernel, kx = place - ky * g.columns.kernel;
  double sum = 0;
  for (std::int64_t i = warp_index(); i < pixels && channel < g.out; i += kWarps) {
    const double gradient = static_cast<double>(to_wide(dy[i * g.out + channel]));
    if (place == places) {
      sum += gradient;
      continue;
    }
    const Place p = place_of(i, g.rows.windows, g.columns.windows, 1);
    const int row = p.row * g.rows.stride - g.rows.before + ky * g.rows.dilation,
              column = p.column * g.columns.stride - g.columns.before + kx * g.columns.dilation;
    if (!is_within(row, g.rows.extent) || !is_within(column, g.columns.extent)) continue;
    const std::int64_t pixel = (p.image * g.rows.extent + row) * g.columns.extent + column;
    sum += gradient * static_cast<double>(to_wide(x[pixel * g.in + channel / g.each]));
  }
  partial[threadIdx.x] = sum;
  __syncthreads();
  if (warp_index() != 0 || channel >= g.out) return;
  for (int warp = 1; warp < kWarps; ++warp) sum += partial[warp * kWarp + lane_index()];
  Wide<T>* to =
      place == places ? dbias + channel : dweight + std::int64_t{channel} * places + place;
  *to = (add ? *to : 0) + static_cast<Wide<T>>(sum);
}

}  // namespace

void depthwise_windows_forward(KernelContext& context, const WindowConv2dForward& o) {
  const std::int64_t count = o.y.count();
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    launch("depthwise_windows_forward", add_window<T>, {loop_blocks(count, kThreads)}, kThreads, 0,
           context.stream, o.x.as<T>(), o.weight.as<T>(), o.bias ? o.bias.as<Wide<T>>() : nullptr,
           geometry_of(o.conv), count, o.write == Write::kAdd, o.y.as<T>());
  });
}

void depthwise_windows_backward_data(KernelContext& context, const WindowConv2dBackwardData& o) {
  const std::int64_t count = o.dx.count();
  with_any_storage(o.dx.dtype, [&]<class T>(T) {
    launch("depthwise_windows_backward_data", add_readers<T>, {loop_blocks(count, kThreads)},
           kThreads, 0, context.stream, o.dy.as<T>(), o.weight.as<T>(), geometry_of(o.conv), count,
           o.write == Write::kAdd, o.dx.as<T>());
  });
}

void depthwise_windows_backward_weights(KernelContext& context,
                                        const WindowConv2dBackwardWeights& o) {
  const std::int64_t pixels = o.dy.count() / o.conv.out_channels,
                     tiles = divide_up(o.conv.out_channels, kWarp),
                     sums = o.conv.window.places() + (o.dbias ? 1 : 0);
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    launch("depthwise_windows_backward_weights", add_pixels<T>,
           {static_cast<unsigned>(tiles * sums)}, kThreads, kThreads * sizeof(double),
           context.stream, o.x.as<T>(), o.dy.as<T>(), geometry_of(o.conv), pixels,
           o.write == Write::kAdd, o.dweight.as<Wide<T>>(),
           o.dbias ? o.dbias.as<Wide<T>>() : nullptr);
  });
}

}  // namespace engine::ops::cuda
