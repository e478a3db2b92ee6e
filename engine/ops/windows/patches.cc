// Checks and dispatches patches. On the CPU, threads share the windows, or the pixels of x.
#include "engine/ops/windows/patches.h"

#include <algorithm>
#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/general/elements.h"
#include "engine/ops/windows/patches_cuda.h"

namespace engine::ops {
namespace {

void check_patches(const char* kernel, const KernelContext& context, const Patches& o) {
  const WindowGeometry& g = o.window;
  check_context(kernel, context);
  check_stored(kernel, "x", o.x);
  const std::int64_t n = o.x.shape.rank() == 4 ? o.x.shape[0] : 0;
  check_shape(kernel, "x", o.x, {n, g.rows.extent, g.columns.extent, g.channels});
  check_dtype(kernel, "patches", o.patches, o.x.dtype);
  check_count(kernel, "patches", o.patches, o.lines * g.columns.count() * g.places() * o.channels);
  if (o.first_line < 0 || o.lines < 0 || o.first_line + o.lines > n * g.rows.count() ||
      o.first_channel < 0 || o.channels < 1 || o.first_channel + o.channels > g.channels)
    throw ShapeError(std::string(kernel) + ": lines from " + std::to_string(o.first_line) + " to " +
                     std::to_string(o.first_line + o.lines) + ", channels from " +
                     std::to_string(o.first_channel) + " to " +
                     std::to_string(o.first_channel + o.channels) + ": expected those of x " +
                     o.x.shape.to_string());
}

// Copies the window of output pixel (line, column).
template <class T>
void take_patch(const Patches& o, std::int64_t line, std::int64_t column, T* to) {
  const WindowAxis &rows = o.window.rows, &columns = o.window.columns;
  const std::int64_t image = line / rows.count(), channels = o.channels,
                     top = line % rows.count() * rows.stride - rows.before,
                     left = column * columns.stride - columns.before;
  for (std::int64_t ky = 0; ky < rows.kernel; ++ky) {
    const std::int64_t y = top + ky * rows.dilation;
    const bool is_inside = y >= 0 && y < rows.extent;
    for (std::int64_t kx = 0; kx < columns.kernel; ++kx, to += channels) {
      const std::int64_t x = left + kx * columns.dilation;
      if (is_inside && x >= 0 && x < columns.extent)
        std::copy_n(o.x.as<T>() +
                        ((image * rows.extent + y) * columns.extent + x) * o.window.channels +
                        o.first_channel,
                    channels, to);
      else
        std::fill_n(to, channels, T{});
    }
  }
}

template <class T>
void take_on_cpu(ThreadPool& threads, const Patches& o) {
  const std::int64_t width = o.window.columns.count(), each = o.window.places() * o.channels;
  threads.run(o.lines * width, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i)
      take_patch<T>(o, o.first_line + i / width, i % width, o.patches.as<T>() + i * each);
  });
}

// Adds to the pixel (row, column) of x, with rows counted over all images.
template <class T>
void add_to_pixel(const Patches& o, std::int64_t row, std::int64_t column) {
  constexpr std::int64_t kBlock = 64;  // channels: sums that stay in registers and the L1 cache
  const WindowAxis &rows = o.window.rows, &columns = o.window.columns;
  const std::int64_t image = row / rows.extent, width = columns.count();
  T* pixel = o.x.as<T>() + (row * columns.extent + column) * o.window.channels + o.first_channel;
  for (std::int64_t begin = 0; begin < o.channels; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, o.channels - begin);
    Computed<T> sums[kBlock] = {};
    for (std::int64_t ky = 0; ky < rows.kernel; ++ky) {
      const std::int64_t out = rows.window_of(row % rows.extent, ky),
                         line = image * rows.count() + out - o.first_line;
      if (out < 0 || line < 0 || line >= o.lines) continue;
      for (std::int64_t kx = 0; kx < columns.kernel; ++kx) {
        const std::int64_t at = columns.window_of(column, kx);
        if (at < 0) continue;
        const std::int64_t place = ((line * width + at) * rows.kernel + ky) * columns.kernel + kx;
        const T* from = o.patches.as<T>() + place * o.channels + begin;
        for (std::int64_t c = 0; c < count; ++c) sums[c] += computed(from[c]);
      }
    }
    for (std::int64_t c = 0; c < count; ++c)
      pixel[begin + c] = stored_as<T>(computed(pixel[begin + c]) + sums[c]);
  }
}

template <class T>
void add_on_cpu(ThreadPool& threads, const Patches& o) {
  const PixelRows all = rows_read_by(o);
  const std::int64_t width = o.window.columns.extent;
  threads.run((all.last - all.first) * width, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i)
      add_to_pixel<T>(o, all.first + i / width, i % width);
  });
}

}  // namespace

void take_patches(KernelContext& context, const Patches& o) {
  check_patches("take_patches", context, o);
  if (o.patches.count() == 0) return;
  const auto call = [&]<class T>(T) { take_on_cpu<T>(*context.threads, o); };
  dispatch(
      context, o.x.dtype, [&] { call(double{}); }, [&] { with_cpu_storage(o.x.dtype, call); },
      [&] { cuda::take_patches(context, o); });
}

void add_patches(KernelContext& context, const Patches& o) {
  check_patches("add_patches", context, o);
  if (o.patches.count() == 0) return;
  const auto call = [&]<class T>(T) { add_on_cpu<T>(*context.threads, o); };
  dispatch(
      context, o.x.dtype, [&] { call(double{}); }, [&] { with_cpu_storage(o.x.dtype, call); },
      [&] { cuda::add_patches(context, o); });
}

}  // namespace engine::ops
