// Pooling: in forward, one thread per pixel and pack of channels of the output; in backward, one
// per pixel and pack of the input, which adds up the windows that cover it in order: no atomics,
// the same bits in every run. Global pooling: a block has one sample's pixels of up to 32 packs of
// channels. Bound by bytes; if windows overlap, repeated reads come from caches.
#include "engine/ops/pool/pool2d_cuda.h"

#include "engine/ops/device/row_blocks.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

struct Planes {
  std::int64_t count;  // number of work items: pixels of the tensor that is written, times packs
  int packs, channels;
  int in_h, in_w, out_h, out_w;
  int window, stride, padding;
};

Planes planes_of(const Pool2dGeometry& g, std::int64_t pixels, int width) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  const int packs = number(g.channels) / width;
  return {pixels * packs,     packs,
          number(g.channels), number(g.in_h),
          number(g.in_w),     number(g.out_h()),
          number(g.out_w()),  number(g.window),
          number(g.stride),   number(g.padding)};
}

// The position of a work item among planes of [height, width] pixels.
struct Pixel {
  std::int64_t sample, index;  // index: of the pixel in the batch
  int row, column, pack;
};
__device__ __forceinline__ Pixel pixel_at(std::int64_t i, int packs, int height, int width) {
  const std::int64_t index = quotient(i, packs), line = quotient(index, width),
                     sample = quotient(line, height);
  return {sample, index, static_cast<int>(line - sample * height),
          static_cast<int>(index - line * width), static_cast<int>(i - index * packs)};
}

__device__ __forceinline__ int smaller(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int larger(int a, int b) { return a > b ? a : b; }

// Along one axis: the windows [first, last) of `windows` that cover a pixel.
struct Range {
  int first, last;
};
__device__ __forceinline__ Range covering(const Planes& g, int pixel, int windows) {
  const int place = pixel + g.padding;
  return {place < g.window ? 0 : (place - g.window) / g.stride + 1,
          smaller(windows, place / g.stride + 1)};
}
// Returns the part of a window that is inside the image, as pixels.
__device__ __forceinline__ Range inside(const Planes& g, int window, int extent) {
  const int start = window * g.stride - g.padding;
  return {larger(start, 0), smaller(start + g.window, extent)};
}
// Returns the number of a window's places along one axis that are in the padded image.
__device__ __forceinline__ int places(const Planes& g, int window, int extent) {
  return smaller(g.window, extent + 2 * g.padding - window * g.stride);
}
template <class N>
__device__ __forceinline__ N inverse_area(const Planes& g, int out_row, int out_column) {
  return N(1) / static_cast<N>(places(g, out_row, g.in_h) * places(g, out_column, g.in_w));
}

// The kernels' loop processes every (grid * threads)-th item, starting at this one.
__device__ __forceinline__ std::int64_t first_place() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}
__device__ __forceinline__ std::int64_t place_step() { return std::int64_t{gridDim.x} * kThreads; }

template <class T, int W>
__global__ void __launch_bounds__(kThreads, 4)
    max_forward(const T* x, Planes g, T* y, std::uint8_t* argmax) {
  for (std::int64_t i = first_place(); i < g.count; i += place_step()) {
    const Pixel out = pixel_at(i, g.packs, g.out_h, g.out_w);
    const Range rows = inside(g, out.row, g.in_h), columns = inside(g, out.column, g.in_w);
    const int top = out.row * g.stride - g.padding, left = out.column * g.stride - g.padding;
    Pack<T, W> best{};
    Pack<std::uint8_t, W> winner{};
    bool any = false;
    for (int h = rows.first; h < rows.last; ++h)
      for (int w = columns.first; w < columns.last; ++w) {
        const Pack<T, W> in =
            load_pack<W>(x + ((out.sample * g.in_h + h) * g.in_w + w) * g.channels + out.pack * W);
        const auto place = static_cast<std::uint8_t>((h - top) * g.window + w - left);
        ENGINE_UNROLL
        for (int j = 0; j < W; ++j) {
          const Wide<T> value = to_wide(in.at[j]);
          if (any && !(value > to_wide(best.at[j])) && value == value)
            continue;  // NaN is greater than everything; the last NaN wins
          best.at[j] = in.at[j];
          winner.at[j] = place;
        }
        any = true;
      }
    const std::int64_t to = out.index * g.channels + out.pack * W;
    store_pack<W>(y + to, best);
    if (argmax != nullptr) store_pack<W>(argmax + to, winner);
  }
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    max_backward(const T* dy, const std::uint8_t* argmax, Planes g, bool add, T* dx) {
  for (std::int64_t i = first_place(); i < g.count; i += place_step()) {
    const Pixel in = pixel_at(i, g.packs, g.in_h, g.in_w);
    const Range rows = covering(g, in.row, g.out_h), columns = covering(g, in.column, g.out_w);
    Wide<T> sums[W] = {};
    for (int h = rows.first; h < rows.last; ++h)
      for (int w = columns.first; w < columns.last; ++w) {
        const std::int64_t from =
            ((in.sample * g.out_h + h) * g.out_w + w) * g.channels + in.pack * W;
        const int place =
            (in.row - h * g.stride + g.padding) * g.window + in.column - w * g.stride + g.padding;
        const Pack<T, W> gradient = load_pack<W>(dy + from);
        const Pack<std::uint8_t, W> winner = load_pack<W>(argmax + from);
        ENGINE_UNROLL
        for (int j = 0; j < W; ++j)
          if (winner.at[j] == place) sums[j] += to_wide(gradient.at[j]);
      }
    put<T, W>(sums, add, dx + in.index * g.channels + in.pack * W);
  }
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads) average_forward(const T* x, Planes g, T* y) {
  for (std::int64_t i = first_place(); i < g.count; i += place_step()) {
    const Pixel out = pixel_at(i, g.packs, g.out_h, g.out_w);
    const Range rows = inside(g, out.row, g.in_h), columns = inside(g, out.column, g.in_w);
    Wide<T> sums[W] = {};
    for (int h = rows.first; h < rows.last; ++h)
      for (int w = columns.first; w < columns.last; ++w) {
        const Pack<T, W> in =
            load_pack<W>(x + ((out.sample * g.in_h + h) * g.in_w + w) * g.channels + out.pack * W);
        ENGINE_UNROLL
        for (int j = 0; j < W; ++j) sums[j] += to_wide(in.at[j]);
      }
    const auto factor = inverse_area<Wide<T>>(g, out.row, out.column);
    ENGINE_UNROLL
    for (int j = 0; j < W; ++j) sums[j] *= factor;
    put<T, W>(sums, false, y + out.index * g.channels + out.pack * W);
  }
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    average_backward(const T* dy, Planes g, bool add, T* dx) {
  for (std::int64_t i = first_place(); i < g.count; i += place_step()) {
    const Pixel in = pixel_at(i, g.packs, g.in_h, g.in_w);
    const Range rows = covering(g, in.row, g.out_h), columns = covering(g, in.column, g.out_w);
    Wide<T> sums[W] = {};
    for (int h = rows.first; h < rows.last; ++h)
      for (int w = columns.first; w < columns.last; ++w) {
        const Pack<T, W> gradient =
            load_pack<W>(dy + ((in.sample * g.out_h + h) * g.out_w + w) * g.channels + in.pack * W);
        const auto factor = inverse_area<Wide<T>>(g, h, w);
        ENGINE_UNROLL
        for (int j = 0; j < W; ++j) sums[j] += to_wide(gradient.at[j]) * factor;
      }
    put<T, W>(sums, add, dx + in.index * g.channels + in.pack * W);
  }
}

// One row block per sample. Sums are Wide<T> over kRows pixels and float64 beyond.
template <class T, int W>
__global__ void __launch_bounds__(kRowThreads)
    global_forward(const T* x, RowBlocks b, double inverse_pixels, T* y) {
  constexpr int kRows = 4;
  double* shared = &block_shared<double>();
  const RowPlace p = row_place<W>(b, blockIdx.x);
  double totals[W] = {};
  for (std::int64_t row = p.first; p.inside && row < p.last; row += std::int64_t{kRows} * b.lanes) {
    Pack<T, W> in[kRows];
    ENGINE_UNROLL
    for (int r = 0; r < kRows; ++r)
      if (row + std::int64_t{r} * b.lanes < p.last)
        in[r] = load_pack<W>(x + (row + std::int64_t{r} * b.lanes) * b.channels + p.channel);
    ENGINE_UNROLL
    for (int j = 0; j < W; ++j) {
      Wide<T> sum = 0;
      ENGINE_UNROLL
      for (int r = 0; r < kRows; ++r)
        if (row + std::int64_t{r} * b.lanes < p.last) sum += to_wide(in[r].at[j]);
      totals[j] += sum;
    }
  }
  sum_over_lanes(b, p.lane, totals, shared);
  if (!p.inside || p.lane != 0) return;
  Pack<T, W> out;
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j)
    out.at[j] = from_wide<T>(static_cast<Wide<T>>(totals[j] * inverse_pixels));
  store_pack<W>(y + std::int64_t{blockIdx.x} * b.channels + p.channel, out);
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    global_backward(const T* dy, std::int64_t count, std::int64_t pixels, int packs,
                    Wide<T> inverse_pixels, bool add, T* dx) {
  for (std::int64_t i = first_place(); i < count; i += place_step()) {
    const std::int64_t row = quotient(i, packs), sample = quotient(row, pixels),
                       pack = i - row * packs;
    const Pack<T, W> gradient = load_pack<W>(dy + (sample * packs + pack) * W);
    Wide<T> sums[W];
    ENGINE_UNROLL
    for (int j = 0; j < W; ++j) sums[j] = to_wide(gradient.at[j]) * inverse_pixels;
    put<T, W>(sums, add, dx + i * W);
  }
}

}  // namespace

void max_pool2d_forward(KernelContext& context, const MaxPool2dForward& o) {
  const Pool2dGeometry& geometry = o.geometry;
  const std::int64_t n = o.x.shape[0];
  if (n == 0) return;
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    with_width<T>(
        geometry.channels, {o.x.data, o.y.data, o.argmax.data},
        [&]<int W>(std::integral_constant<int, W>) {
          const Planes g = planes_of(geometry, n * geometry.out_h() * geometry.out_w(), W);
          launch("max_pool2d_forward", max_forward<T, W>, {loop_blocks(g.count, kThreads)},
                 kThreads, 0, context.stream, o.x.as<T>(), g, o.y.as<T>(),
                 o.argmax ? o.argmax.as<std::uint8_t>() : nullptr);
        });
  });
}

void max_pool2d_backward(KernelContext& context, const MaxPool2dBackward& o) {
  const Pool2dGeometry& geometry = o.geometry;
  const std::int64_t n = o.dx.shape[0];
  if (n == 0) return;
  with_any_storage(o.dx.dtype, [&]<class T>(T) {
    with_width<T>(geometry.channels, {o.dy.data, o.argmax.data, o.dx.data},
                  [&]<int W>(std::integral_constant<int, W>) {
                    const Planes g = planes_of(geometry, n * geometry.in_h * geometry.in_w, W);
                    launch("max_pool2d_backward", max_backward<T, W>,
                           {loop_blocks(g.count, kThreads)}, kThreads, 0, context.stream,
                           o.dy.as<T>(), o.argmax.as<std::uint8_t>(), g, o.write == Write::kAdd,
                           o.dx.as<T>());
                  });
  });
}

void average_pool2d_forward(KernelContext& context, const AveragePool2dForward& o) {
  const Pool2dGeometry& geometry = o.geometry;
  const std::int64_t n = o.x.shape[0];
  if (n == 0) return;
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    with_width<T>(
        geometry.channels, {o.x.data, o.y.data}, [&]<int W>(std::integral_constant<int, W>) {
          const Planes g = planes_of(geometry, n * geometry.out_h() * geometry.out_w(), W);
          launch("average_pool2d_forward", average_forward<T, W>, {loop_blocks(g.count, kThreads)},
                 kThreads, 0, context.stream, o.x.as<T>(), g, o.y.as<T>());
        });
  });
}

void average_pool2d_backward(KernelContext& context, const AveragePool2dBackward& o) {
  const Pool2dGeometry& geometry = o.geometry;
  const std::int64_t n = o.dx.shape[0];
  if (n == 0) return;
  with_any_storage(o.dx.dtype, [&]<class T>(T) {
    with_width<T>(geometry.channels, {o.dy.data, o.dx.data},
                  [&]<int W>(std::integral_constant<int, W>) {
                    const Planes g = planes_of(geometry, n * geometry.in_h * geometry.in_w, W);
                    launch("average_pool2d_backward", average_backward<T, W>,
                           {loop_blocks(g.count, kThreads)}, kThreads, 0, context.stream,
                           o.dy.as<T>(), g, o.write == Write::kAdd, o.dx.as<T>());
                  });
  });
}

void global_average_pool_forward(KernelContext& context, std::int64_t n, std::int64_t pixels,
                                 std::int64_t channels, TensorView x, TensorView y) {
  if (n * channels == 0) return;
  with_any_storage(x.dtype, [&]<class T>(T) {
    with_width<T>(channels, {x.data, y.data}, [&]<int W>(std::integral_constant<int, W>) {
      RowBlocks blocks = make_row_blocks(n * pixels, channels, W, 1, 1);
      blocks.rows_per_block = pixels;
      blocks.row_blocks = static_cast<int>(n);
      launch("global_average_pool_forward", global_forward<T, W>, blocks.grid(), kRowThreads,
             W * kRowThreads * sizeof(double), context.stream, x.as<T>(), blocks,
             1 / static_cast<double>(pixels), y.as<T>());
    });
  });
}

void global_average_pool_backward(KernelContext& context, std::int64_t n, std::int64_t pixels,
                                  std::int64_t channels, TensorView dy, TensorView dx,
                                  Write write) {
  if (n * channels == 0) return;
  with_any_storage(dx.dtype, [&]<class T>(T) {
    with_width<T>(channels, {dy.data, dx.data}, [&]<int W>(std::integral_constant<int, W>) {
      const int packs = static_cast<int>(channels) / W;
      const std::int64_t count = n * pixels * packs;
      launch("global_average_pool_backward", global_backward<T, W>, {loop_blocks(count, kThreads)},
             kThreads, 0, context.stream, dy.as<T>(), count, pixels, packs,
             1 / static_cast<Wide<T>>(pixels), write == Write::kAdd, dx.as<T>());
    });
  });
}

}  // namespace engine::ops::cuda
