// One thread per pixel and pack of channels of the tensor that is written: in backward it adds up
// the pixels that read it, in order: no atomics, the same bits in every run. Places are computed in
// float64, a few numbers per pack. Bound by bytes.
#include "engine/ops/windows/resize_cuda.h"

#include "engine/ops/device/row_blocks.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

struct Sizes {
  ResizeAxis rows, columns;
  std::int64_t packs, count;  // of a pixel, and of all pixels that are written
};

// A pixel of an image of [height, width], and its pack of channels.
struct Place {
  std::int64_t image, row, column, pack;
};
__device__ __forceinline__ Place place_of(std::int64_t i, std::int64_t packs, std::int64_t height,
                                          std::int64_t width) {
  const std::int64_t pixel = quotient(i, packs), line = quotient(pixel, width),
                     image = quotient(line, height);
  return {image, line - image * height, pixel - line * width, i - pixel * packs};
}

template <class T, int W>
__device__ __forceinline__ void add_pack(const T* from, double weight, Wide<T> (&sums)[W]) {
  const Pack<T, W> pack = load_pack<W>(from);
  const auto factor = static_cast<Wide<T>>(weight);
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j) sums[j] += factor * to_wide(pack.at[j]);
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads) read_taps(const T* x, Sizes g, T* y) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < g.count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const Place p = place_of(i, g.packs, g.rows.out, g.columns.out);
    const ResizeAxis::Taps row = g.rows.taps(p.row), column = g.columns.taps(p.column);
    Wide<T> sums[W] = {};
    for (int ky = 0; ky < (row.weight != 0 ? 2 : 1); ++ky)
      for (int kx = 0; kx < (column.weight != 0 ? 2 : 1); ++kx) {
        const double weight =
            (ky == 0 ? 1 - row.weight : row.weight) * (kx == 0 ? 1 - column.weight : column.weight);
        const std::int64_t line = p.image * g.rows.in + (ky == 0 ? row.low : row.high),
                           pixel = line * g.columns.in + (kx == 0 ? column.low : column.high);
        add_pack<T, W>(x + (pixel * g.packs + p.pack) * W, weight, sums);
      }
    put<T, W>(sums, false, y + i * W);
  }
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads) sum_readers(const T* dy, Sizes g, bool add, T* dx) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < g.count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const Place p = place_of(i, g.packs, g.rows.in, g.columns.in);
    const std::int64_t last_row = g.rows.last_reader(p.row),
                       last_column = g.columns.last_reader(p.column);
    Wide<T> sums[W] = {};
    for (std::int64_t row = g.rows.first_reader(p.row); row <= last_row; ++row) {
      const double by_row = g.rows.weight(row, p.row);
      if (by_row == 0) continue;
      for (std::int64_t c = g.columns.first_reader(p.column); c <= last_column; ++c) {
        const double weight = by_row * g.columns.weight(c, p.column);
        if (weight == 0) continue;
        const std::int64_t pixel = (p.image * g.rows.out + row) * g.columns.out + c;
        add_pack<T, W>(dy + (pixel * g.packs + p.pack) * W, weight, sums);
      }
    }
    put<T, W>(sums, add, dx + i * W);
  }
}

}  // namespace

void resize_forward(KernelContext& context, const ResizeForward& o) {
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    with_width<T>(o.x.shape[3], {o.x.data, o.y.data}, [&]<int W>(std::integral_constant<int, W>) {
      const Sizes sizes{o.rows, o.columns, o.x.shape[3] / W, o.y.count() / W};
      launch("resize_forward", read_taps<T, W>, {loop_blocks(sizes.count, kThreads)}, kThreads, 0,
             context.stream, o.x.as<T>(), sizes, o.y.as<T>());
    });
  });
}

void resize_backward(KernelContext& context, const ResizeBackward& o) {
  with_any_storage(o.dx.dtype, [&]<class T>(T) {
    with_width<T>(o.dx.shape[3], {o.dy.data, o.dx.data},
                  [&]<int W>(std::integral_constant<int, W>) {
                    const Sizes sizes{o.rows, o.columns, o.dx.shape[3] / W, o.dx.count() / W};
                    launch("resize_backward", sum_readers<T, W>,
                           {loop_blocks(sizes.count, kThreads)}, kThreads, 0, context.stream,
                           o.dy.as<T>(), sizes, o.write == Write::kAdd, o.dx.as<T>());
                  });
  });
}

}  // namespace engine::ops::cuda
