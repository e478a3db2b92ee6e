// Products of tensors of one shape are flat loops. If one factor scales the channels of the other,
// a thread multiplies a pack of channels of one pixel; for the gradient of the narrow factor, a
// block sums one sample's pixels for up to 32 packs of channels. Bound by bytes.
#include "engine/ops/common/rows.h"
#include "engine/ops/device/map_elements.h"
#include "engine/ops/device/row_blocks.h"
#include "engine/ops/elementwise/elementwise_cuda.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

struct ProductOf {
  static constexpr bool kPair = true;
  template <class N>
  __device__ __forceinline__ N operator()(N a, N b) const {
    return a * b;
  }
};

// `count` and `packs`: all packs, and those of a pixel.
template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    scale_channels(const T* wide, const T* narrow, std::int64_t count, std::int64_t pixels,
                   std::int64_t packs, bool add, T* to) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t pixel = quotient(i, packs), sample = quotient(pixel, pixels);
    const Pack<T, W> from = load_pack<W>(wide + i * W),
                     factors = load_pack<W>(narrow + (sample * packs + i - pixel * packs) * W);
    Wide<T> products[W];
    ENGINE_UNROLL
    for (int j = 0; j < W; ++j) products[j] = to_wide(from.at[j]) * to_wide(factors.at[j]);
    put<T, W>(products, add, to + i * W);
  }
}

// One row block per sample. Sums are Wide<T> over kRows pixels and float64 beyond.
template <class T, int W>
__global__ void __launch_bounds__(kRowThreads)
    sum_pixels(const T* a, const T* b, RowBlocks blocks, bool add, T* to) {
  constexpr int kRows = 4;
  double* shared = &block_shared<double>();
  const RowPlace p = row_place<W>(blocks, blockIdx.x);
  double totals[W] = {};
  for (std::int64_t row = p.first; p.inside && row < p.last;
       row += std::int64_t{kRows} * blocks.lanes) {
    Pack<T, W> left[kRows], right[kRows];
    ENGINE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t pixel = row + std::int64_t{r} * blocks.lanes;
      if (pixel >= p.last) continue;
      left[r] = load_pack<W>(a + pixel * blocks.channels + p.channel);
      right[r] = load_pack<W>(b + pixel * blocks.channels + p.channel);
    }
    ENGINE_UNROLL
    for (int j = 0; j < W; ++j) {
      Wide<T> sum = 0;
      ENGINE_UNROLL
      for (int r = 0; r < kRows; ++r)
        if (row + std::int64_t{r} * blocks.lanes < p.last)
          sum += to_wide(left[r].at[j]) * to_wide(right[r].at[j]);
      totals[j] += static_cast<double>(sum);
    }
  }
  sum_over_lanes(blocks, p.lane, totals, shared);
  if (!p.inside || p.lane != 0) return;
  Wide<T> sums[W];
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j) sums[j] = static_cast<Wide<T>>(totals[j]);
  put<T, W>(sums, add, to + std::int64_t{blockIdx.x} * blocks.channels + p.channel);
}

}  // namespace

void multiply_channels(KernelContext& context, TensorView wide, TensorView narrow,
                       std::int64_t pixels, TensorView to, Write write) {
  if (pixels == 1)
    return launch_map(context, "multiply_channels", ProductOf{},
                      {.a = wide, .b = narrow, .count = wide.count(), .to = to, .write = write});
  if (wide.count() == 0) return;
  const std::int64_t channels = row_sizes(wide).width;
  with_any_storage(wide.dtype, [&]<class T>(T) {
    with_width<T>(
        channels, {wide.data, narrow.data, to.data}, [&]<int W>(std::integral_constant<int, W>) {
          const std::int64_t count = wide.count() / W;
          launch("multiply_channels", scale_channels<T, W>, {loop_blocks(count, kThreads)},
                 kThreads, 0, context.stream, wide.as<T>(), narrow.as<T>(), count, pixels,
                 channels / W, write == Write::kAdd, to.as<T>());
        });
  });
}

void multiply_sums(KernelContext& context, TensorView a, TensorView b, std::int64_t pixels,
                   TensorView to, Write write) {
  if (pixels == 1)
    return launch_map(context, "multiply_sums", ProductOf{},
                      {.a = a, .b = b, .count = a.count(), .to = to, .write = write});
  if (to.count() == 0) return;
  const std::int64_t channels = row_sizes(a).width;
  with_any_storage(a.dtype, [&]<class T>(T) {
    with_width<T>(channels, {a.data, b.data, to.data}, [&]<int W>(std::integral_constant<int, W>) {
      RowBlocks blocks = make_row_blocks(row_sizes(a).rows, channels, W, 1, 1);
      blocks.rows_per_block = pixels;
      blocks.row_blocks = static_cast<int>(to.count() / channels);
      launch("multiply_sums", sum_pixels<T, W>, blocks.grid(), kRowThreads,
             W * kRowThreads * sizeof(double), context.stream, a.as<T>(), b.as<T>(), blocks,
             write == Write::kAdd, to.as<T>());
    });
  });
}

}  // namespace engine::ops::cuda
