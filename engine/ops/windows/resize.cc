// Checks and dispatches resizing. On the CPU, threads share the pixels of the tensor that is
// written.
#include "engine/ops/windows/resize.h"

#include <algorithm>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/general/elements.h"
#include "engine/ops/windows/resize_cuda.h"

namespace engine::ops {
namespace {

constexpr std::int64_t kBlock = 64;  // channels: sums that stay in registers and the L1 cache

void check_resize(const char* kernel, const KernelContext& context, const ResizeForward& o) {
  check_context(kernel, context);
  check_stored(kernel, "x", o.x);
  check_dtype(kernel, "y", o.y, o.x.dtype);
  const bool is_image = o.x.shape.rank() == 4;
  const std::int64_t n = is_image ? o.x.shape[0] : 0, channels = is_image ? o.x.shape[3] : 0;
  check_shape(kernel, "x", o.x, {n, o.rows.in, o.columns.in, channels});
  check_shape(kernel, "y", o.y, {n, o.rows.out, o.columns.out, channels});
}

// Calls add(pixel, weight) for the pixels of an image of this many columns that a pixel reads.
template <class Add>
void for_each_tap(const ResizeAxis::Taps& row, const ResizeAxis::Taps& column, std::int64_t columns,
                  Add add) {
  const auto of_row = [&](std::int64_t y, double weight) {
    add(y * columns + column.low, weight * (1 - column.weight));
    if (column.weight != 0) add(y * columns + column.high, weight * column.weight);
  };
  of_row(row.low, 1 - row.weight);
  if (row.weight != 0) of_row(row.high, row.weight);
}

// Writes one pixel: `for_each` calls its argument with each pixel that is read, and its weight.
template <class T, class ForEach>
void sum_pixel(const T* from, T* to, std::int64_t channels, bool adds, ForEach for_each) {
  for (std::int64_t begin = 0; begin < channels; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, channels - begin);
    Computed<T> sums[kBlock] = {};
    for_each([&](std::int64_t pixel, double weight) {
      const T* values = from + pixel * channels + begin;
      const auto factor = static_cast<Computed<T>>(weight);
      for (std::int64_t c = 0; c < count; ++c) sums[c] += factor * computed(values[c]);
    });
    for (std::int64_t c = 0; c < count; ++c) {
      T& value = to[begin + c];
      value = stored_as<T>(adds ? computed(value) + sums[c] : sums[c]);
    }
  }
}

template <class T>
void forward_on_cpu(ThreadPool& threads, const ResizeForward& o) {
  const std::int64_t channels = o.x.shape[3], from = o.rows.in * o.columns.in,
                     to = o.rows.out * o.columns.out;
  threads.run(o.y.count() / channels, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i) {
      const auto row = o.rows.taps(i % to / o.columns.out),
                 column = o.columns.taps(i % o.columns.out);
      sum_pixel(o.x.as<T>() + i / to * from * channels, o.y.as<T>() + i * channels, channels, false,
                [&](auto add) { for_each_tap(row, column, o.columns.in, add); });
    }
  });
}

// Calls add(pixel, weight) for all outputs that read the input pixel (y, x).
template <class Add>
void for_each_reader(const ResizeBackward& o, std::int64_t y, std::int64_t x, Add add) {
  for (std::int64_t row = o.rows.first_reader(y); row <= o.rows.last_reader(y); ++row) {
    const double by_row = o.rows.weight(row, y);
    if (by_row == 0) continue;
    for (std::int64_t column = o.columns.first_reader(x); column <= o.columns.last_reader(x);
         ++column) {
      const double weight = by_row * o.columns.weight(column, x);
      if (weight != 0) add(row * o.columns.out + column, weight);
    }
  }
}

template <class T>
void backward_on_cpu(ThreadPool& threads, const ResizeBackward& o) {
  const std::int64_t channels = o.dx.shape[3], from = o.rows.out * o.columns.out,
                     to = o.rows.in * o.columns.in;
  threads.run(o.dx.count() / channels, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i)
      sum_pixel(o.dy.as<T>() + i / to * from * channels, o.dx.as<T>() + i * channels, channels,
                o.write == Write::kAdd, [&](auto add) {
                  for_each_reader(o, i % to / o.columns.in, i % o.columns.in, add);
                });
  });
}

}  // namespace

void resize_forward(KernelContext& context, const ResizeForward& o) {
  check_resize("resize_forward", context, o);
  if (o.y.count() == 0) return;
  const auto call = [&]<class T>(T) { forward_on_cpu<T>(*context.threads, o); };
  dispatch(
      context, o.x.dtype, [&] { call(double{}); }, [&] { with_cpu_storage(o.x.dtype, call); },
      [&] { cuda::resize_forward(context, o); });
}

void resize_backward(KernelContext& context, const ResizeBackward& o) {
  check_resize("resize_backward", context, {o.rows, o.columns, o.dx, o.dy});
  if (o.dx.count() == 0) return;
  const auto call = [&]<class T>(T) { backward_on_cpu<T>(*context.threads, o); };
  dispatch(
      context, o.dx.dtype, [&] { call(double{}); }, [&] { with_cpu_storage(o.dx.dtype, call); },
      [&] { cuda::resize_backward(context, o); });
}

}  // namespace engine::ops
