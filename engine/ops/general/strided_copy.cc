// Checks and dispatches strided copies. On the CPU, runs that are contiguous in both tensors are
// copied whole; if the innermost axis is contiguous in y alone and another one in x, tiles of the
// two are transposed.
#include "engine/ops/general/strided_copy.h"

#include <algorithm>
#include <string>

#include "engine/core/error.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/general/elements.h"
#include "engine/ops/general/strided_copy_cuda.h"

namespace engine::ops {
namespace {

constexpr std::int64_t kUnit = 4096;  // elements; fewer are not worth waking a thread
constexpr std::int64_t kSide = 32;    // of a tile: two of them fit in the L1 cache

// Returns the axes in the order of y's memory, merged.
Axes<2> in_order_of_y(const Axes<2>& axes) {
  std::array<Axis<2>, Shape::kMaxRank> sorted = axes.at;
  std::stable_sort(sorted.begin(), sorted.begin() + axes.count,
                   [](const Axis<2>& a, const Axis<2>& b) { return a.steps[1] > b.steps[1]; });
  Axes<2> merged;
  for (int d = 0; d < axes.count; ++d) merged.add(sorted[static_cast<std::size_t>(d)]);
  return merged;
}

void check_copy(const KernelContext& context, const StridedCopy& o, std::int64_t elements) {
  check_stored("strided_copy", "x", o.x);
  check_dtype("strided_copy", "y", o.y, o.x.dtype);
  check_context("strided_copy", context);
  if (elements == 0) return;
  const std::int64_t x_last = o.x_first + o.axes.last_index(0),
                     y_last = o.y_first + o.axes.last_index(1);
  if (std::min(o.x_first, o.y_first) < 0 || x_last >= o.x.count() || y_last >= o.y.count())
    throw ShapeError("strided_copy: the last elements are " + std::to_string(x_last) + " of x " +
                     o.x.shape.to_string() + " and " + std::to_string(y_last) + " of y " +
                     o.y.shape.to_string() + ": expected elements of both");
}

// Writes elements of one type: copies if kPlain, else scales or adds.
template <class T, bool kPlain>
struct Writer {
  Computed<T> scale;
  bool add;

  void operator()(const T& from, T& to) const {
    if constexpr (kPlain) {
      to = from;
    } else {
      const Computed<T> value = computed(from) * scale;
      to = stored_as<T>(add ? computed(to) + value : value);
    }
  }
};

template <class T, bool kPlain>
void copy_run(const T* x, T* y, const Axis<2>& axis, Writer<T, kPlain> write) {
  if (axis.steps[0] == 1 && axis.steps[1] == 1) {
    for (std::int64_t i = 0; i < axis.count; ++i) write(x[i], y[i]);
    return;
  }
  for (std::int64_t i = 0; i < axis.count; ++i) write(x[i * axis.steps[0]], y[i * axis.steps[1]]);
}

template <class T, bool kPlain>
void copy_runs(ThreadPool& threads, const Axes<2>& axes, const T* x, T* y,
               Writer<T, kPlain> write) {
  const std::int64_t elements = axes.elements();
  const Axis<2> inner = axes.inner();
  threads.run((elements + kUnit - 1) / kUnit, [&](std::int64_t first, std::int64_t last, int) {
    for_each_run(axes, first * kUnit, std::min(last * kUnit, elements),
                 [&](const auto& places, std::int64_t count) {
                   copy_run(x + places[0], y + places[1], {count, inner.steps}, write);
                 });
  });
}

// The axis of those outside of the innermost that is contiguous in x if the innermost is not; -1 if
// there is none that is worth a transposition.
int transposed_axis(const Axes<2>& axes) {
  if (axes.inner().steps[1] != 1 || axes.inner().steps[0] <= 1) return -1;
  for (int d = axes.count - 2; d >= 0; --d) {
    const Axis<2>& axis = axes.at[static_cast<std::size_t>(d)];
    if (axis.steps[0] == 1 && axis.count >= 4) return d;
  }
  return -1;
}

// Copies rows of up to kSide elements of y, for all elements of the axis that is contiguous in x.
template <class T, bool kPlain>
void copy_tiles(const T* x, T* y, const Axis<2>& rows, const Axis<2>& columns,
                Writer<T, kPlain> write) {
  for (std::int64_t begin = 0; begin < rows.count; begin += kSide)
    for (std::int64_t r = begin; r < std::min(begin + kSide, rows.count); ++r)
      copy_run(x + r, y + r * rows.steps[1], columns, write);
}

template <class T, bool kPlain>
void transpose(ThreadPool& threads, const Axes<2>& axes, int row_axis, const T* x, T* y,
               Writer<T, kPlain> write) {
  const Axis<2> columns = axes.inner(), rows = axes.at[static_cast<std::size_t>(row_axis)];
  Axes<3> tiles;  // the third operand is the first column of a tile
  for (int d = 0; d + 1 < axes.count; ++d) {
    const Axis<2>& axis = axes.at[static_cast<std::size_t>(d)];
    if (d != row_axis) tiles.add({axis.count, {axis.steps[0], axis.steps[1], 0}});
  }
  tiles.add({(columns.count + kSide - 1) / kSide,
             {kSide * columns.steps[0], kSide * columns.steps[1], kSide}});
  const Axis<3> step = tiles.inner();
  const std::int64_t each = std::max<std::int64_t>(1, kUnit / (kSide * rows.count)),
                     count = tiles.elements();
  threads.run((count + each - 1) / each, [&](std::int64_t first, std::int64_t last, int) {
    for_each_run(tiles, first * each, std::min(last * each, count),
                 [&](const auto& places, std::int64_t run) {
                   for (std::int64_t t = 0; t < run; ++t) {
                     const std::int64_t column = places[2] + t * step.steps[2];
                     copy_tiles(x + places[0] + t * step.steps[0],
                                y + places[1] + t * step.steps[1], rows,
                                {std::min(kSide, columns.count - column), columns.steps}, write);
                   }
                 });
  });
}

template <class T, bool kPlain>
void copy_on_cpu(ThreadPool& threads, const StridedCopy& o, const Axes<2>& axes) {
  const Writer<T, kPlain> write{static_cast<Computed<T>>(o.scale), o.write == Write::kAdd};
  const T* x = o.x.as<T>() + o.x_first;
  T* y = o.y.as<T>() + o.y_first;
  const int rows = transposed_axis(axes);
  rows < 0 ? copy_runs(threads, axes, x, y, write) : transpose(threads, axes, rows, x, y, write);
}

}  // namespace

void strided_copy(KernelContext& context, const StridedCopy& o) {
  const std::int64_t elements = o.axes.elements();
  check_copy(context, o, elements);
  if (elements == 0) return;
  const Axes<2> axes = in_order_of_y(o.axes);
  const auto call = [&]<class T>(T) {
    if (o.write == Write::kOverwrite && o.scale == 1)
      copy_on_cpu<T, true>(*context.threads, o, axes);
    else
      copy_on_cpu<T, false>(*context.threads, o, axes);
  };
  dispatch(
      context, o.x.dtype, [&] { call(double{}); }, [&] { with_cpu_storage(o.x.dtype, call); },
      [&] {
        StridedCopy ordered = o;
        ordered.axes = axes;
        cuda::strided_copy(context, ordered);
      });
}

}  // namespace engine::ops
