// One thread per pack of channels: of a place of the patches, which it copies; or of a pixel of x,
// to which it adds the patches that read it, in order: no atomics, the same bits in every run.
// Bound by bytes; repeated reads of x come from caches.
#include "engine/ops/windows/patches_cuda.h"

#include <numeric>

#include "engine/ops/device/row_blocks.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/windows/window_lines.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

// `first` and `lines`: of output pixels. The widths are in packs.
struct Windows {
  WindowLine rows, columns;
  std::int64_t first, lines, image_width, first_pack, packs;
};
Windows windows_of(const Patches& o, int width) {
  return {line_of(o.window.rows),    line_of(o.window.columns), o.first_line,      o.lines,
          o.window.channels / width, o.first_channel / width,   o.channels / width};
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    copy_places(const T* x, Windows g, std::int64_t count, T* patches) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t place = quotient(i, g.packs), above = quotient(place, g.columns.kernel),
                       window = quotient(above, g.rows.kernel),
                       line = quotient(window, g.columns.windows),
                       image = quotient(g.first + line, g.rows.windows);
    const auto kx = static_cast<int>(place - above * g.columns.kernel),
               ky = static_cast<int>(above - window * g.rows.kernel),
               column = static_cast<int>(window - line * g.columns.windows),
               row = static_cast<int>(g.first + line - image * g.rows.windows);
    const int y = row * g.rows.stride - g.rows.before + ky * g.rows.dilation,
              x_at = column * g.columns.stride - g.columns.before + kx * g.columns.dilation;
    Pack<T, W> pack{};
    if (y >= 0 && y < g.rows.extent && x_at >= 0 && x_at < g.columns.extent)
      pack = load_pack<W>(x +
                          (((image * g.rows.extent + y) * g.columns.extent + x_at) * g.image_width +
                           g.first_pack + i - place * g.packs) *
                              W);
    store_pack<W>(patches + i * W, pack);
  }
}

// `first_row`: of x, over all images.
template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    add_places(const T* patches, Windows g, std::int64_t first_row, std::int64_t count, T* x) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t pixel = quotient(i, g.packs), below = quotient(pixel, g.columns.extent),
                       row = first_row + below, image = quotient(row, g.rows.extent),
                       pack = i - pixel * g.packs;
    const auto column = static_cast<int>(pixel - below * g.columns.extent),
               y = static_cast<int>(row - image * g.rows.extent);
    Wide<T> sums[W] = {};
    for (int ky = 0; ky < g.rows.kernel; ++ky) {
      const int out = window_of(g.rows, y, ky);
      const std::int64_t line = image * g.rows.windows + out - g.first;
      if (out < 0 || line < 0 || line >= g.lines) continue;
      for (int kx = 0; kx < g.columns.kernel; ++kx) {
        const int at = window_of(g.columns, column, kx);
        if (at < 0) continue;
        const std::int64_t place =
            ((line * g.columns.windows + at) * g.rows.kernel + ky) * g.columns.kernel + kx;
        const Pack<T, W> from = load_pack<W>(patches + (place * g.packs + pack) * W);
        ENGINE_UNROLL
        for (int j = 0; j < W; ++j) sums[j] += to_wide(from.at[j]);
      }
    }
    put<T, W>(sums, true,
              x + ((row * g.columns.extent + column) * g.image_width + g.first_pack + pack) * W);
  }
}

// Calls call(T{}, width) with the widest packs that both tensors consist of.
template <class Call>
void with_packs(const Patches& o, Call call) {
  const std::int64_t common = std::gcd(std::gcd(o.window.channels, o.first_channel), o.channels);
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    with_width<T>(common, {o.x.data, o.patches.data},
                  [&]<int W>(std::integral_constant<int, W> width) { call(T{}, width); });
  });
}

}  // namespace

void take_patches(KernelContext& context, const Patches& o) {
  with_packs(o, [&]<class T, int W>(T, std::integral_constant<int, W>) {
    const std::int64_t count = o.patches.count() / W;
    launch("take_patches", copy_places<T, W>, {loop_blocks(count, kThreads)}, kThreads, 0,
           context.stream, o.x.as<T>(), windows_of(o, W), count, o.patches.as<T>());
  });
}

void add_patches(KernelContext& context, const Patches& o) {
  const PixelRows rows = rows_read_by(o);
  with_packs(o, [&]<class T, int W>(T, std::integral_constant<int, W>) {
    const std::int64_t count = (rows.last - rows.first) * o.window.columns.extent * o.channels / W;
    launch("add_patches", add_places<T, W>, {loop_blocks(count, kThreads)}, kThreads, 0,
           context.stream, o.patches.as<T>(), windows_of(o, W), rows.first, count, o.x.as<T>());
  });
}

}  // namespace engine::ops::cuda
