// Convolution of several groups in NHWC, without products of matrices. Forward and the gradient of
// the input are the same sums (Axis): a thread has a few pixels of a row and a few adjacent
// channels.
//
// Depthwise layers are bound by bytes. A thread's pixels share each load of a weight and, with
// stride 1, the pixels that their taps read along a row; what other threads read again comes from
// caches. Other groups, and depthwise layers with a channel multiplier, are bound by flops: a
// thread multiplies blocks of 4 x 4 weights. Tiles of matrix products (gemm_main_loop.h) have at
// least 32 columns. Networks have groups of 4 to 64 channels, so that products group by group would
// mostly multiply zeros, with a launch per group.
#include <algorithm>

#include "engine/ops/conv2d/conv2d_cuda.h"
#include "engine/ops/conv2d/conv2d_window.h"
#include "engine/ops/device/float_access.h"
#include "engine/ops/device/row_blocks.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256, kPixels = 4;  // pixels of a thread, along a row

// One axis of the maps that are read and written. Forward, result j reads pixel j * stride -
// padding + b by tap b. Backward, only every stride-th tap reaches a result; it depends on the
// result's phase, the remainder of its coordinate.
struct Axis {
  int from, to, kernel, stride, padding;
  bool backward;

  BASE_HOST_DEVICE int from_step() const { return backward ? 1 : stride; }
  BASE_HOST_DEVICE int to_step() const { return backward ? stride : 1; }
};

// Tap b < count of the result `phase` + j * to_step reads pixel j * from_step + start + b, by the
// kernel's tap first + b * step.
struct Taps {
  int start, count, first, step;
};
__device__ __forceinline__ Taps taps_of(const Axis& axis, int phase) {
  if (!axis.backward) return {-axis.padding, axis.kernel, 0, 1};
  const int place = (phase + axis.padding) / axis.stride,
            first = phase + axis.padding - place * axis.stride,
            count = first < axis.kernel ? (axis.kernel - first - 1) / axis.stride + 1 : 0;
  return {place - (count - 1), count, first + (count - 1) * axis.stride, -axis.stride};
}

// The sizes of a forward pass, or of the gradient of the input.
struct Pass {
  Axis y, x;
  int from_channels, from_group, to_channels, to_group;
  int packs, tiles, phases;  // of channels per pixel; of pixels per phase; of a row
  std::int64_t count;        // of work items
};

Pass pass_of(const Conv2dGeometry& g, std::int64_t n, bool backward, int pack) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  const auto axis = [&](std::int64_t in, std::int64_t out, std::int64_t kernel) {
    return Axis{number(backward ? out : in),
                number(backward ? in : out),
                number(kernel),
                number(g.stride),
                number(g.padding),
                backward};
  };
  Pass pass{};
  pass.y = axis(g.in_h, g.out_h(), g.kernel_h), pass.x = axis(g.in_w, g.out_w(), g.kernel_w);
  pass.from_channels = number(backward ? g.out_channels : g.in_channels);
  pass.from_group = number(backward ? outs_of(g) : ins_of(g));
  pass.to_channels = number(backward ? g.in_channels : g.out_channels);
  pass.to_group = number(backward ? ins_of(g) : outs_of(g));
  pass.packs = pass.to_channels / pack;
  pass.phases = std::min(pass.x.to_step(), pass.x.to);
  pass.tiles = number(divide_up(divide_up(pass.x.to, pass.x.to_step()), kPixels));
  pass.count = n * pass.y.to * pass.phases * pass.tiles * pass.packs;
  return pass;
}

// The results of a work item: pixels column + p * to_step of a row; row and column of the pixel
// that their tap (0, 0) reads; the taps [first_row, last_row) whose pixels are inside.
struct Tile {
  std::int64_t image;
  int row, column, pack, from_row, from_column, first_row, last_row;
  Taps y, x;
};
__device__ __forceinline__ Tile tile_at(const Pass& pass, std::int64_t item) {
  const std::int64_t tile = quotient(item, pass.packs), part = quotient(tile, pass.tiles),
                     line = quotient(part, pass.phases), image = quotient(line, pass.y.to);
  Tile t;
  t.image = image;
  t.pack = static_cast<int>(item - tile * pass.packs);
  t.row = static_cast<int>(line - image * pass.y.to);
  const int phase = static_cast<int>(part - line * pass.phases),
            first = static_cast<int>(tile - part * pass.tiles) * kPixels,
            down = t.row / pass.y.to_step();
  t.y = taps_of(pass.y, t.row - down * pass.y.to_step()), t.x = taps_of(pass.x, phase);
  t.column = phase + first * pass.x.to_step();
  t.from_row = down * pass.y.from_step() + t.y.start;
  t.from_column = first * pass.x.from_step() + t.x.start;
  t.first_row = t.from_row < 0 ? -t.from_row : 0;
  t.last_row = pass.y.from - t.from_row < t.y.count ? pass.y.from - t.from_row : t.y.count;
  return t;
}

// Row `a` of a tile's taps: the row of pixels that it reads, and the index of its first tap.
template <class T>
__device__ __forceinline__ const T* row_of(const Pass& pass, const Tile& t, int a, const T* from) {
  return from + (t.image * pass.y.from + t.from_row + a) * pass.x.from * pass.from_channels;
}
__device__ __forceinline__ int tap_of(const Pass& pass, const Tile& t, int a) {
  return (t.y.first + a * t.y.step) * pass.x.kernel + t.x.first;
}

__device__ __forceinline__ bool is_inside(int place, int extent) {
  return static_cast<unsigned>(place) < static_cast<unsigned>(extent);
}

template <int W>
__device__ __forceinline__ void start_sums(const float* bias, int channel,
                                           float (&sums)[kPixels][W]) {
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j) {
    const float start = bias == nullptr ? 0.0f : bias[channel + j];
    ENGINE_UNROLL
    for (int p = 0; p < kPixels; ++p) sums[p][j] = start;
  }
}

// Writes a tile's sums, or adds them to the memory.
template <int W, class T>
__device__ __forceinline__ void put_sums(const Pass& pass, const Tile& t, int channel, bool add,
                                         float (&sums)[kPixels][W], T* to) {
  const std::int64_t line = (t.image * pass.y.to + t.row) * pass.x.to;
  ENGINE_UNROLL
  for (int p = 0; p < kPixels; ++p) {
    const int column = t.column + p * pass.x.to_step();
    if (column >= pass.x.to) continue;
    T* at = to + (line + column) * pass.to_channels + channel;
    if (add) {
      float before[W];
      load_floats<W>(at, before);
      ENGINE_UNROLL
      for (int j = 0; j < W; ++j) sums[p][j] += before[j];
    }
    store_floats<W>(at, sums[p]);
  }
}

// The kernels' loop processes every (grid * threads)-th item, starting at this one.
__device__ __forceinline__ std::int64_t first_item() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}
__device__ __forceinline__ std::int64_t item_step() { return std::int64_t{gridDim.x} * kThreads; }

// W channels; the taps of a row are a multiple of C. If C > 1, from_step is 1.
template <class T, int W, int C>
__global__ void __launch_bounds__(kThreads)
    depthwise(const T* from, const T* weight, const float* bias, Pass pass, bool add, T* to) {
  const std::int64_t channels = pass.to_channels;
  for (std::int64_t item = first_item(); item < pass.count; item += item_step()) {
    const Tile t = tile_at(pass, item);
    const int channel = t.pack * W;
    float sums[kPixels][W];
    start_sums(bias, channel, sums);
    for (int a = t.first_row; a < t.last_row; ++a) {
      const T* row = row_of(pass, t, a, from) + channel;
      const T* tap = weight + tap_of(pass, t, a) * channels + channel;
      for (int b = 0; b < t.x.count; b += C) {
        float taps[C][W];
        ENGINE_UNROLL
        for (int k = 0; k < C; ++k) load_floats<W>(tap + (b + k) * t.x.step * channels, taps[k]);
        ENGINE_UNROLL
        for (int q = 0; q < kPixels + C - 1; ++q) {
          const int column = t.from_column + b + q * pass.x.from_step();
          if (!is_inside(column, pass.x.from)) continue;
          float values[W];
          load_floats<W>(row + column * channels, values);
          ENGINE_UNROLL
          for (int k = 0; k < C; ++k) {
            if (q < k || q - k >= kPixels) continue;
            ENGINE_UNROLL
            for (int j = 0; j < W; ++j) sums[q - k][j] += values[j] * taps[k][j];
          }
        }
      }
    }
    put_sums<W>(pass, t, channel, add, sums, to);
  }
}

// Loads the weights of F channels that are read for W results. Forward, `from` is an index within
// the group and `to` one of all channels; backward, the reverse.
template <bool kBackward, int F, int W, class T>
__device__ __forceinline__ void load_weights(const T* tap, std::int64_t columns, int from, int to,
                                             float (&weights)[F][W]) {
  if constexpr (!kBackward) {
    ENGINE_UNROLL
    for (int f = 0; f < F; ++f) load_floats<W>(tap + (from + f) * columns + to, weights[f]);
  } else {
    ENGINE_UNROLL
    for (int w = 0; w < W; ++w) {
      float row[F];
      load_floats<F>(tap + (to + w) * columns + from, row);
      ENGINE_UNROLL
      for (int f = 0; f < F; ++f) weights[f][w] = row[f];
    }
  }
}

// W channels of a group, from F channels at a time.
template <class T, int F, int W, bool kBackward>
__global__ void __launch_bounds__(kThreads)
    grouped(const T* from, const T* weight, const float* bias, Pass pass, bool add, T* to) {
  const std::int64_t columns = kBackward ? pass.from_channels : pass.to_channels,
                     of_tap = columns * (kBackward ? pass.to_group : pass.from_group);
  for (std::int64_t item = first_item(); item < pass.count; item += item_step()) {
    const Tile t = tile_at(pass, item);
    const int channel = t.pack * W, group = channel / pass.to_group,
              first = group * pass.from_group,  // channel that is read
        to_index = kBackward ? channel - group * pass.to_group : channel;
    float sums[kPixels][W];
    start_sums(bias, channel, sums);
    for (int a = t.first_row; a < t.last_row; ++a) {
      const T* row = row_of(pass, t, a, from) + first;
      for (int b = 0; b < t.x.count; ++b) {
        const T* tap = weight + (tap_of(pass, t, a) + b * t.x.step) * of_tap;
        for (int f = 0; f < pass.from_group; f += F) {
          float weights[F][W];
          load_weights<kBackward>(tap, columns, kBackward ? first + f : f, to_index, weights);
          ENGINE_UNROLL
          for (int p = 0; p < kPixels; ++p) {
            const int column = t.from_column + b + p * pass.x.from_step();
            if (!is_inside(column, pass.x.from)) continue;
            float values[F];
            load_floats<F>(row + std::int64_t{column} * pass.from_channels + f, values);
            ENGINE_UNROLL
            for (int k = 0; k < F; ++k) {
              ENGINE_UNROLL
              for (int j = 0; j < W; ++j) sums[p][j] += values[k] * weights[k][j];
            }
          }
        }
      }
    }
    put_sums<W>(pass, t, channel, add, sums, to);
  }
}

// Forward, or the gradient of the input.
struct Sums {
  const char* name;
  TensorView from, weight, to, bias;
  bool backward, add;
};
void compute(KernelContext& context, const Conv2dGeometry& g, const Sums& s) {
  const std::int64_t n = s.to.shape[0];
  require_countable(g, n);
  if (n == 0) return;
  with_storage(s.to.dtype, [&]<class T>(T) {
    const GroupCut cut =
        group_cut(g, sizeof(T), aligned_to_16({s.from.data, s.weight.data, s.to.data}));
    const auto start = [&](auto kernel, int pack) {
      const Pass pass = pass_of(g, n, s.backward, pack);
      launch(s.name, kernel, {loop_blocks(pass.count, kThreads)}, kThreads, 0, context.stream,
             s.from.as<T>(), s.weight.as<T>(), s.bias.as<float>(), pass, s.add, s.to.as<T>());
    };
    if (is_depthwise(g)) {
      return with_depthwise_cut<T>(
          cut, [&]<int W, int C>(std::integral_constant<int, W>, std::integral_constant<int, C>) {
            start(depthwise<T, W, C>, W);
          });
    }
    with_number<1, 4>(cut.ins, [&]<int I>(std::integral_constant<int, I>) {
      with_number<1, 4>(cut.outs, [&]<int O>(std::integral_constant<int, O>) {
        start(s.backward ? grouped<T, O, I, true> : grouped<T, I, O, false>, s.backward ? I : O);
      });
    });
  });
}

}  // namespace

void grouped_conv2d_forward(KernelContext& context, const Conv2dForward& o) {
  compute(context, o.geometry,
          {"grouped_conv2d_forward", o.x, o.weight, o.y, o.bias, false, false});
}

void grouped_conv2d_backward_data(KernelContext& context, const Conv2dBackwardData& o) {
  compute(context, o.geometry,
          {"grouped_conv2d_backward_data", o.dy, o.weight, o.dx, {}, true, o.write == Write::kAdd});
}

}  // namespace engine::ops::cuda
