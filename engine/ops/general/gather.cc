// Checks and dispatches gathering. On the CPU, threads share the samples.
#include "engine/ops/general/gather.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "engine/core/error.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/general/elements.h"
#include "engine/ops/general/gather_cuda.h"
#include "engine/ops/general/gather_sizes.h"

namespace engine::ops {
namespace {

void check_gather(const char* kernel, const KernelContext& context, int axis,
                  const GatherEntries& chosen, const TensorView& x, const TensorView& y) {
  check_stored(kernel, "x", x);
  check_dtype(kernel, "y", y, x.dtype);
  check_context(kernel, context);
  const int rank = x.shape.rank();
  bool fits = axis >= 0 && axis < rank && y.shape.rank() == rank;
  for (int d = 0; fits && d < rank; ++d)
    fits = d == axis ? y.shape[d] == std::ssize(chosen.entries) : x.shape[d] == y.shape[d];
  if (fits && !chosen.entries.empty()) {
    const auto [least, most] = std::ranges::minmax(chosen.entries);
    fits = least >= 0 && most < x.shape[axis];
  }
  if (!fits)
    throw ShapeError(std::string(kernel) + ": x has the shape " + x.shape.to_string() + ", y " +
                     y.shape.to_string() + ": expected " + std::to_string(chosen.entries.size()) +
                     " entries along axis " + std::to_string(axis));
}

// Adds the rows of one outer index.
template <class T>
void add_rows(const GatherEntries& chosen, std::int64_t inner, const T* dy, T* dx) {
  const std::vector<std::int32_t>& order = chosen.positions;
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const std::int32_t entry = chosen.entries[static_cast<std::size_t>(order[begin])];
    while (end < order.size() && chosen.entries[static_cast<std::size_t>(order[end])] == entry)
      ++end;
    T* to = dx + entry * inner;
    for (std::int64_t i = 0; i < inner; ++i) {
      Computed<T> sum = 0;
      for (std::size_t k = begin; k < end; ++k) sum += computed(dy[order[k] * inner + i]);
      to[i] = stored_as<T>(computed(to[i]) + sum);
    }
  }
}

}  // namespace

GatherEntries::GatherEntries(std::span<const std::int64_t> indices)
    : entries(indices.begin(), indices.end()), positions(indices.size()) {
  std::iota(positions.begin(), positions.end(), 0);
  std::ranges::stable_sort(positions, {}, [&](std::int32_t position) {
    return entries[static_cast<std::size_t>(position)];
  });
}

void gather_forward(KernelContext& context, const GatherForward& o) {
  check_gather("gather_forward", context, o.axis, o.chosen, o.x, o.y);
  const GatherSizes s = gather_sizes(o.axis, o.x, o.y);
  if (o.y.count() == 0) return;
  const auto call = [&]<class T>(T) {
    const T* x = o.x.as<T>();
    T* y = o.y.as<T>();
    context.threads->run(s.outer * s.positions, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t row = first; row < last; ++row) {
        const auto position = static_cast<std::size_t>(row % s.positions);
        const std::int64_t from = row / s.positions * s.entries + o.chosen.entries[position];
        std::copy_n(x + from * s.inner, s.inner, y + row * s.inner);
      }
    });
  };
  dispatch(
      context, o.x.dtype, [&] { call(double{}); }, [&] { with_cpu_storage(o.x.dtype, call); },
      [&] { cuda::gather_forward(context, o); });
}

void gather_backward(KernelContext& context, const GatherBackward& o) {
  check_gather("gather_backward", context, o.axis, o.chosen, o.dx, o.dy);
  const GatherSizes s = gather_sizes(o.axis, o.dx, o.dy);
  if (o.write == Write::kOverwrite) zero(context, o.dx);
  if (o.dy.count() == 0) return;
  const auto call = [&]<class T>(T) {
    const T* dy = o.dy.as<T>();
    T* dx = o.dx.as<T>();
    context.threads->run(s.outer, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t outer = first; outer < last; ++outer)
        add_rows(o.chosen, s.inner, dy + outer * s.positions * s.inner,
                 dx + outer * s.entries * s.inner);
    });
  };
  dispatch(
      context, o.dx.dtype, [&] { call(double{}); }, [&] { with_cpu_storage(o.dx.dtype, call); },
      [&] { cuda::add_gathered(context, o); });
}

}  // namespace engine::ops
