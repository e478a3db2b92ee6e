// Checks and dispatches maxima. On the CPU, threads share the elements of y.
#include "engine/ops/general/reduce_max.h"

#include <cmath>
#include <string>

#include "engine/core/error.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/general/elements.h"
#include "engine/ops/general/reduce_max_cuda.h"

namespace engine::ops {
namespace {

void check_maxima(const char* kernel, const KernelContext& context, const TensorView& x,
                  const TensorView& y, const Axes<2>& kept, const Axes<2>& reduced) {
  check_stored(kernel, "x", x);
  check_dtype(kernel, "y", y, x.dtype);
  check_context(kernel, context);
  if (kept.elements() == 0) return;
  if (reduced.elements() == 0) throw ShapeError(std::string(kernel) + ": a maximum of no elements");
  if (kept.last_index(0) + reduced.last_index(0) >= x.count() || kept.last_index(1) >= y.count())
    throw ShapeError(std::string(kernel) + ": expected elements of x " + x.shape.to_string() +
                     " and y " + y.shape.to_string());
}

template <class C>
bool is_above(C value, C best) {
  return value > best || (std::isnan(value) && !std::isnan(best));
}

// Returns the place of the first maximum of the reduced elements from `start` on.
template <class T>
std::int64_t place_of_maximum(const T* x, std::int64_t start, const Axes<2>& reduced) {
  std::int64_t place = start;
  auto best = computed(x[start]);
  const std::int64_t step = reduced.inner().steps[0];
  for_each_run(reduced, 0, reduced.elements(), [&](const auto& at, std::int64_t run) {
    for (std::int64_t i = 0; i < run; ++i) {
      const std::int64_t here = start + at[0] + i * step;
      const auto value = computed(x[here]);
      if (!is_above(value, best)) continue;
      best = value;
      place = here;
    }
  });
  return place;
}

// Calls body(place in x, place in y) for the maximum of each element of y.
template <class T, class Body>
void for_each_maximum(ThreadPool& threads, const TensorView& x, const Axes<2>& kept,
                      const Axes<2>& reduced, Body body) {
  const auto steps = kept.inner().steps;
  threads.run(kept.elements(), [&](std::int64_t first, std::int64_t last, int) {
    for_each_run(kept, first, last, [&](const auto& at, std::int64_t run) {
      for (std::int64_t i = 0; i < run; ++i)
        body(place_of_maximum(x.as<T>(), at[0] + i * steps[0], reduced), at[1] + i * steps[1]);
    });
  });
}

}  // namespace

void reduce_max_forward(KernelContext& context, const ReduceMaxForward& o) {
  check_maxima("reduce_max_forward", context, o.x, o.y, o.kept, o.reduced);
  if (o.kept.elements() == 0) return;
  const auto call = [&]<class T>(T) {
    const T* x = o.x.as<T>();
    T* y = o.y.as<T>();
    for_each_maximum<T>(*context.threads, o.x, o.kept, o.reduced,
                        [=](std::int64_t from, std::int64_t to) { y[to] = x[from]; });
  };
  dispatch(
      context, o.x.dtype, [&] { call(double{}); }, [&] { with_cpu_storage(o.x.dtype, call); },
      [&] { cuda::reduce_max_forward(context, o); });
}

void reduce_max_backward(KernelContext& context, const ReduceMaxBackward& o) {
  check_maxima("reduce_max_backward", context, o.x, o.dy, o.kept, o.reduced);
  check_like("reduce_max_backward", "dx", o.dx, o.x);
  if (o.write == Write::kOverwrite) zero(context, o.dx);
  if (o.kept.elements() == 0) return;
  const auto call = [&]<class T>(T) {
    const T* dy = o.dy.as<T>();
    T* dx = o.dx.as<T>();
    for_each_maximum<T>(*context.threads, o.x, o.kept, o.reduced,
                        [=](std::int64_t to, std::int64_t from) {
                          dx[to] = stored_as<T>(computed(dx[to]) + computed(dy[from]));
                        });
  };
  dispatch(
      context, o.x.dtype, [&] { call(double{}); }, [&] { with_cpu_storage(o.x.dtype, call); },
      [&] { cuda::add_to_maxima(context, o); });
}

}  // namespace engine::ops
