// Gradients of convolution's weights and bias. dweight, viewed as [kh kw in, out], is a matrix
// product of gathered x and dy over all output pixels. It is small and the sum is long, so the
// pixels are split: a second pass adds the parts in order ("split K": CUTLASS documentation,
// "Efficient GEMM in CUDA", 2017). Bound by flops; the second pass and the bias by bytes.
//
// For several groups, threads sum products of single channels or blocks of 4 x 4 over rows of dy,
// as grouped_conv2d_cuda.cu says why, and the second pass is column_sums(). Depthwise layers are
// bound by bytes: a thread loads a few pixels of a row once for all of their taps.
#include <algorithm>

#include "engine/core/arena.h"
#include "engine/ops/conv2d/conv2d_cuda.h"
#include "engine/ops/conv2d/conv2d_loaders.h"
#include "engine/ops/device/column_sums_cuda.h"
#include "engine/ops/device/float_access.h"
#include "engine/ops/device/row_blocks.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/gemm/gemm_launch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kPixels = 4;  // of a row, that a depthwise layer's thread loads at once

__device__ __forceinline__ bool is_inside(int place, int extent) {
  return static_cast<unsigned>(place) < static_cast<unsigned>(extent);
}

// The gradient of the weights, in units: the GroupCut of a tap and pair of channels. Rows are those
// of dy. A block has 32 units, or all if there are fewer, and several lanes of rows; neighboring
// units read the same pixels.
struct Gradient {
  RowBlocks blocks;
  std::int64_t weights = 0;
  int in = 0, out = 0, ins = 0, outs = 0, in_h = 0, in_w = 0, out_h = 0, out_w = 0, kernel_h = 0,
      kernel_w = 0, stride = 0, padding = 0;
};

// Blocks that fill the largest device, and the minimum number of pixels that a thread sums.
constexpr std::int64_t kMaxBlocks = 528, kMinPixels = 64;

struct Parts {
  RowBlocks blocks;
  std::int64_t most;  // for any smaller n, too
};
Parts parts_of(const Conv2dGeometry& g, std::int64_t n, const GroupCut& cut) {
  const std::int64_t units = g.kernel_h * (g.kernel_w / cut.taps) * (ins_of(g) / cut.ins) *
                             (g.out_channels / cut.outs),
                     rows_each = std::max<std::int64_t>(kMinPixels / g.out_w(), 1);
  require_countable(g, 0);
  const RowBlocks blocks = make_row_blocks(n * g.out_h(), units, 1, rows_each, kMaxBlocks);
  return {blocks, max_row_blocks(blocks, rows_each, kMaxBlocks)};
}
std::int64_t weights_of(const Conv2dGeometry& g) {
  return g.kernel_h * g.kernel_w * ins_of(g) * g.out_channels;
}

// Scratch: that of the second pass, then the parts.
std::size_t parts_offset(const Conv2dGeometry& g, std::int64_t parts) {
  return align_up(column_sums_scratch_bytes(parts, weights_of(g)));
}

// This thread's unit and rows. As row_place(), but with the units in the grid's x, whose number may
// exceed 65535.
__device__ __forceinline__ RowPlace sum_place(const RowBlocks& b) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread / b.columns;
  const std::int64_t unit = std::int64_t{blockIdx.x} * b.columns + thread - lane * b.columns,
                     start = std::int64_t{blockIdx.y} * b.rows_per_block,
                     end = start + b.rows_per_block;
  return {lane < b.lanes && unit < b.packs, lane, static_cast<int>(unit), start + lane,
          end < b.rows ? end : b.rows};
}

// Sums over the lanes of a block; lane 0 writes dweight[tap + k, i, channel ...] of this part.
template <int W>
__device__ __forceinline__ void put_part(const Gradient& g, const RowPlace& place,
                                         std::int64_t index, float (&sums)[W], float* parts) {
  sum_over_lanes(g.blocks, place.lane, sums, &block_shared<float>());
  if (!place.inside || place.lane != 0) return;
  float* to = parts + blockIdx.y * g.weights + index;
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j) to[j] = sums[j];
}

// The elements at which the rows begin that tap row `ky` multiplies at row `row` of dy.
struct RowPair {
  bool inside;  // of x
  std::int64_t x, dy;
};
__device__ __forceinline__ RowPair rows_at(const Gradient& g, std::int64_t row, int ky) {
  const std::int64_t image = quotient(row, g.out_h);
  const int y = static_cast<int>(row - image * g.out_h) * g.stride + ky - g.padding;
  return {is_inside(y, g.in_h), (image * g.in_h + y) * g.in_w * g.in, row * g.out_w * g.out};
}

// W channels and C adjacent taps. If C > 1, the stride is 1.
template <class T, int W, int C>
__global__ void __launch_bounds__(kRowThreads)
    depthwise_weights(const T* x, const T* dy, Gradient g, float* parts) {
  const RowPlace place = sum_place(g.blocks);
  const int chunks = g.kernel_w / C, line = place.channel / chunks, pack = line / g.kernel_h,
            kx = (place.channel - line * chunks) * C, ky = line - pack * g.kernel_h,
            channel = pack * W;
  const std::int64_t channels = g.out;
  float sums[C][W] = {};
  for (std::int64_t row = place.first; place.inside && row < place.last; row += g.blocks.lanes) {
    const RowPair rows = rows_at(g, row, ky);
    if (!rows.inside) continue;
    const T *x_row = x + rows.x + channel, *dy_row = dy + rows.dy + channel;
    for (int first = 0; first < g.out_w; first += kPixels) {
      float gradients[kPixels][W];
      ENGINE_UNROLL
      for (int p = 0; p < kPixels; ++p)
        if (first + p < g.out_w) load_floats<W>(dy_row + (first + p) * channels, gradients[p]);
      ENGINE_UNROLL
      for (int q = 0; q < kPixels + C - 1; ++q) {
        const int column = (first + q) * g.stride + kx - g.padding;
        if (!is_inside(column, g.in_w)) continue;
        float values[W];
        load_floats<W>(x_row + column * channels, values);
        ENGINE_UNROLL
        for (int k = 0; k < C; ++k) {
          if (q < k || q - k >= kPixels || first + q - k >= g.out_w) continue;
          ENGINE_UNROLL
          for (int j = 0; j < W; ++j) sums[k][j] += values[j] * gradients[q - k][j];
        }
      }
    }
  }
  ENGINE_UNROLL
  for (int k = 0; k < C; ++k)
    put_part(g, place, (ky * g.kernel_w + kx + k) * channels + channel, sums[k], parts);
}

// F channels of x and W of dy, of one tap.
template <class T, int F, int W>
__global__ void __launch_bounds__(kRowThreads)
    grouped_weights(const T* x, const T* dy, Gradient g, float* parts) {
  const RowPlace place = sum_place(g.blocks);
  const int taps = g.kernel_h * g.kernel_w, pair = place.channel / taps,
            tap = place.channel - pair * taps, in_packs = g.ins / F, out_pack = pair / in_packs,
            i = (pair - out_pack * in_packs) * F, channel = out_pack * W,
            from = channel / g.outs * g.ins + i, ky = tap / g.kernel_w, kx = tap - ky * g.kernel_w;
  // The pixels of dy whose tap is inside.
  const int before = g.padding - kx, after = g.in_w + g.padding - kx,
            first = before > 0 ? (before + g.stride - 1) / g.stride : 0,
            reach = after > 0 ? (after - 1) / g.stride + 1 : 0,
            last = reach < g.out_w ? reach : g.out_w;
  float sums[F][W] = {};
  for (std::int64_t row = place.first; place.inside && row < place.last; row += g.blocks.lanes) {
    const RowPair rows = rows_at(g, row, ky);
    if (!rows.inside) continue;
    const T *x_row = x + rows.x + from, *dy_row = dy + rows.dy + channel;
#pragma unroll 4
    for (int column = first; column < last; ++column) {
      float values[F], gradients[W];
      load_floats<F>(x_row + std::int64_t{column * g.stride - before} * g.in, values);
      load_floats<W>(dy_row + std::int64_t{column} * g.out, gradients);
      ENGINE_UNROLL
      for (int f = 0; f < F; ++f) {
        ENGINE_UNROLL
        for (int j = 0; j < W; ++j) sums[f][j] += values[f] * gradients[j];
      }
    }
  }
  ENGINE_UNROLL
  for (int f = 0; f < F; ++f)
    put_part(g, place, (std::int64_t{tap} * g.ins + i + f) * g.out + channel, sums[f], parts);
}

Gradient gradient_of(const Conv2dGeometry& g, const RowBlocks& blocks) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  Gradient made{blocks, weights_of(g)};
  made.in = number(g.in_channels), made.out = number(g.out_channels);
  made.ins = number(ins_of(g)), made.outs = number(outs_of(g));
  made.in_h = number(g.in_h), made.in_w = number(g.in_w);
  made.out_h = number(g.out_h()), made.out_w = number(g.out_w());
  made.kernel_h = number(g.kernel_h), made.kernel_w = number(g.kernel_w);
  made.stride = number(g.stride), made.padding = number(g.padding);
  return made;
}

}  // namespace

std::size_t conv2d_scratch_bytes(const Conv2dGeometry& g, std::int64_t n, DType dtype) {
  const std::int64_t pixels = n * g.out_h() * g.out_w();
  if (dtype == DType::kF64) return column_sums_scratch_bytes(pixels, g.out_channels, dtype);
  const std::int64_t weights =
      max_gemm_workspace_bytes({g.kernel_h * g.kernel_w * g.in_channels, g.out_channels, pixels},
                               gemm_stage_depth(size_of(dtype)), engine::cuda::max_processors());
  return std::max(static_cast<std::size_t>(weights),
                  column_sums_scratch_bytes(pixels, g.out_channels));
}

void conv2d_backward_weights(KernelContext& context, const Conv2dBackwardWeights& o,
                             GemmPlan plan) {
  const Conv2dGeometry& g = o.geometry;
  if (o.dbias)
    column_sums(context, o.dy.data, o.dy.dtype, o.dy.shape[0] * g.out_h() * g.out_w(),
                g.out_channels, o.dbias.data, o.write);
  if (o.x.dtype == DType::kF64)
    return conv2d_backward_weights_f64(context, conv_f64(g, o.x.shape[0]), o.x.as<double>(),
                                       o.dy.as<double>(), o.dweight.as<double>(), o.write);
  const GemmKind kind(o.x.dtype, context.products);
  const Window window = forward_window(g, o.x.shape[0], kind.stage_depth);
  const GemmShape shape{window.depth, g.out_channels, window.places};
  with_storage(o.x.dtype, [&]<class S>(S) {
    using Product = GemmProduct<TapLoader<S>, MatrixLoader<S, false>, MatrixStore<float>>;
    const Product product{
        .name = "conv2d_backward_weights",
        .m = shape.m,
        .n = shape.n,
        .k = shape.k,
        .a = TapLoader<S>::of(window, o.x.as<S>(), in_chunks(o.x.as<S>(), g.in_channels)),
        .b = MatrixLoader<S, false>::of(o.dy.as<S>(), g.out_channels, g.out_channels),
        .store =
            MatrixStore<float>::of(o.dweight.as<float>(), g.out_channels, o.write == Write::kAdd)};
    with_products<S>(context.products, [&](auto products) {
      if (plan.tile == 0)
        plan = plan_on_device(shape, kind, residents_of<products(), GemmGroup<Product>>());
      launch_gemm<products()>(context, plan, product);
    });
  });
}

std::size_t grouped_conv2d_scratch_bytes(const Conv2dGeometry& g, std::int64_t n, DType dtype) {
  std::size_t bytes = column_sums_scratch_bytes(n * g.out_h() * g.out_w(), g.out_channels);
  for (const bool aligned : {false, true}) {
    const std::int64_t parts = parts_of(g, n, group_cut(g, size_of(dtype), aligned)).most;
    bytes = std::max(bytes, parts_offset(g, parts) +
                                static_cast<std::size_t>(parts * weights_of(g)) * sizeof(float));
  }
  return bytes;
}

void grouped_conv2d_backward_weights(KernelContext& context, const Conv2dBackwardWeights& o) {
  constexpr const char* kName = "grouped_conv2d_backward_weights";
  const Conv2dGeometry& g = o.geometry;
  const std::int64_t n = o.x.shape[0];
  require_countable(g, n);
  with_storage(o.x.dtype, [&]<class T>(T) {
    const GroupCut cut = group_cut(g, sizeof(T), aligned_to_16({o.x.data, o.dy.data}));
    const RowBlocks blocks = parts_of(g, n, cut).blocks;
    float* parts =
        reinterpret_cast<float*>(context.scratch.data() + parts_offset(g, blocks.row_blocks));
    const auto start = [&](auto kernel, int floats) {
      launch(
          kName, kernel,
          {static_cast<unsigned>(blocks.column_blocks), static_cast<unsigned>(blocks.row_blocks)},
          kRowThreads, static_cast<std::size_t>(floats) * kRowThreads * sizeof(float),
          context.stream, o.x.as<T>(), o.dy.as<T>(), gradient_of(g, blocks), parts);
    };
    if (is_depthwise(g)) {
      with_depthwise_cut<T>(
          cut, [&]<int W, int C>(std::integral_constant<int, W>, std::integral_constant<int, C>) {
            start(depthwise_weights<T, W, C>, W);
          });
    } else {
      with_number<1, 4>(cut.ins, [&]<int I>(std::integral_constant<int, I>) {
        with_number<1, 4>(cut.outs, [&]<int O>(std::integral_constant<int, O>) {
          start(grouped_weights<T, I, O>, O);
        });
      });
    }
    column_sums(context, parts, DType::kF32, blocks.row_blocks, weights_of(g),
                o.dweight.as<float>(), o.write);
  });
  if (o.dbias) {
    column_sums(context, o.dy.data, o.dy.dtype, n * g.out_h() * g.out_w(), g.out_channels,
                o.dbias.as<float>(), o.write);
  }
}

}  // namespace engine::ops::cuda
