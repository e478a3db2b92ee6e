// Checks and dispatches operators of expanded operands. Their gradients are strided sums.
#include "engine/ops/general/broadcast.h"

#include <algorithm>
#include <string>

#include "engine/core/error.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/general/broadcast_cuda.h"
#include "engine/ops/general/elements.h"
#include "engine/ops/general/strided_copy.h"
#include "engine/ops/general/strided_sum.h"

namespace engine::ops {
namespace {

constexpr std::int64_t kUnit = 4096;  // elements; fewer are not worth waking a thread

using Steps = std::array<std::int64_t, Shape::kMaxRank>;

// The steps of a tensor along the dimensions of `full`; 0 for expanded dimensions.
Steps expanded_steps(const Shape& shape, const Shape& full) {
  Steps steps = dense_steps(shape);
  for (int d = 0; d < full.rank(); ++d)
    if (shape[d] != full[d]) steps[static_cast<std::size_t>(d)] = 0;
  return steps;
}

bool expands_to(const Shape& shape, const Shape& full) {
  bool fits = shape.rank() == full.rank();
  for (int d = 0; fits && d < full.rank(); ++d) fits = shape[d] == full[d] || shape[d] == 1;
  return fits;
}

void check_operands(const char* kernel, const KernelContext& context, const TensorView& a,
                    const TensorView& b, const TensorView& y) {
  check_stored(kernel, "y", y);
  check_dtype(kernel, "a", a, y.dtype);
  check_dtype(kernel, "b", b, y.dtype);
  check_context(kernel, context);
  if (!expands_to(a.shape, y.shape) || !expands_to(b.shape, y.shape))
    throw ShapeError(std::string(kernel) + ": a has the shape " + a.shape.to_string() + ", b " +
                     b.shape.to_string() + ": expected the extents of " + y.shape.to_string() +
                     " or 1");
}

void check_condition(const char* kernel, const TensorView& condition, const TensorView& y) {
  check_dtype(kernel, "condition", condition, y.dtype);
  if (!expands_to(condition.shape, y.shape))
    throw ShapeError(std::string(kernel) + ": the condition has the shape " +
                     condition.shape.to_string() + ": expected the extents of " +
                     y.shape.to_string() + " or 1");
}

// Calls body(op) with the operation on two numbers.
template <class C, class Body>
void with_operation(BinaryKind kind, Body body) {
  switch (kind) {
    case BinaryKind::kAdd:
      return body([](C a, C b) { return a + b; });
    case BinaryKind::kSubtract:
      return body([](C a, C b) { return a - b; });
    case BinaryKind::kMultiply:
      return body([](C a, C b) { return a * b; });
    case BinaryKind::kDivide:
      return body([](C a, C b) { return a / b; });
    case BinaryKind::kGreater:
      return body([](C a, C b) { return a > b ? C{1} : C{0}; });
    case BinaryKind::kGreaterEqual:
      return body([](C a, C b) { return a >= b ? C{1} : C{0}; });
    case BinaryKind::kEqual:
      return body([](C a, C b) { return a == b ? C{1} : C{0}; });
  }
}

// Combines a run of elements; the loops for each combination of contiguous and constant operands
// are compiled alone.
template <class T, class Op>
void combine_run(const T* a, const T* b, T* y, std::int64_t count,
                 const std::array<std::int64_t, 3>& steps, Op op) {
  const auto loop = [&](auto a_at, auto b_at) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = stored_as<T>(op(a_at(i), b_at(i)));
  };
  const auto each_a = [=](std::int64_t i) { return computed(a[i]); };
  const auto each_b = [=](std::int64_t i) { return computed(b[i]); };
  const auto first_a = [value = computed(*a)](std::int64_t) { return value; };
  const auto first_b = [value = computed(*b)](std::int64_t) { return value; };
  if (steps[0] == 1 && steps[1] == 1) return loop(each_a, each_b);
  if (steps[0] == 1) return loop(each_a, first_b);
  if (steps[1] == 1) return loop(first_a, each_b);
  loop(first_a, first_b);
}

template <class T>
void combine(ThreadPool& threads, const BroadcastForward& o, const Axes<3>& axes) {
  const std::int64_t count = o.y.count();
  const auto steps = axes.inner().steps;
  with_operation<Computed<T>>(o.kind, [&](auto op) {
    const T *a = o.a.as<T>(), *b = o.b.as<T>();
    T* y = o.y.as<T>();
    threads.run((count + kUnit - 1) / kUnit, [&](std::int64_t first, std::int64_t last, int) {
      for_each_run(axes, first * kUnit, std::min(last * kUnit, count),
                   [&](const auto& at, std::int64_t run) {
                     combine_run(a + at[0], b + at[1], y + at[2], run, steps, op);
                   });
    });
  });
}

// Chooses a run of elements. The loop over contiguous operands is compiled alone.
template <class T>
void choose_run(const T* condition, const T* a, const T* b, T* y, std::int64_t count,
                const std::array<std::int64_t, 4>& steps) {
  const auto loop = [&](std::int64_t c_step, std::int64_t a_step, std::int64_t b_step) {
    for (std::int64_t i = 0; i < count; ++i)
      y[i] = computed(condition[i * c_step]) != 0 ? a[i * a_step] : b[i * b_step];
  };
  if (steps[0] == 1 && steps[1] == 1 && steps[2] == 1) return loop(1, 1, 1);
  loop(steps[0], steps[1], steps[2]);
}

template <class T>
void choose(ThreadPool& threads, const ChooseForward& o, const Axes<4>& axes) {
  const std::int64_t count = o.y.count();
  const auto steps = axes.inner().steps;
  const T *condition = o.condition.as<T>(), *a = o.a.as<T>(), *b = o.b.as<T>();
  T* y = o.y.as<T>();
  threads.run((count + kUnit - 1) / kUnit, [&](std::int64_t first, std::int64_t last, int) {
    for_each_run(axes, first * kUnit, std::min(last * kUnit, count),
                 [&](const auto& at, std::int64_t run) {
                   choose_run(condition + at[0], a + at[1], b + at[2], y + at[3], run, steps);
                 });
  });
}

// The sum of a term over the dimensions along which `to` is expanded; absent operands are those
// that the term does not have.
void sum_to(KernelContext& context, StridedSum sum, const Shape& full) {
  const Shape to = sum.y.shape;
  const Steps none{};
  const Steps u = dense_steps(full), v = sum.v ? expanded_steps(sum.v.shape, full) : none,
              w = sum.w ? expanded_steps(sum.w.shape, full) : none, y = expanded_steps(to, full);
  for (int d = 0; d < full.rank(); ++d) {
    const auto k = static_cast<std::size_t>(d);
    (to[d] == full[d] ? sum.kept : sum.summed).add({full[d], {u[k], v[k], w[k], y[k]}});
  }
  const bool moves = sum.term == SumTerm::kValue || sum.term == SumTerm::kNegative;
  if (sum.summed.count > 0 || !moves) return strided_sum(context, sum);
  if (sum.y.data == sum.u.data) return;  // dy is the gradient
  StridedCopy copy{.x = sum.u, .y = sum.y, .axes = {}};
  copy.axes.add({full.count(), {1, 1}});
  copy.scale = sum.term == SumTerm::kValue ? 1 : -1;
  copy.write = sum.write;
  strided_copy(context, copy);
}

}  // namespace

void broadcast_forward(KernelContext& context, const BroadcastForward& o) {
  check_operands("broadcast_forward", context, o.a, o.b, o.y);
  const Shape& full = o.y.shape;
  if (full.count() == 0) return;
  const Steps a = expanded_steps(o.a.shape, full), b = expanded_steps(o.b.shape, full),
              y = dense_steps(full);
  Axes<3> axes;
  for (int d = 0; d < full.rank(); ++d) {
    const auto k = static_cast<std::size_t>(d);
    axes.add({full[d], {a[k], b[k], y[k]}});
  }
  const auto call = [&]<class T>(T) { combine<T>(*context.threads, o, axes); };
  dispatch(
      context, o.y.dtype, [&] { call(double{}); }, [&] { with_cpu_storage(o.y.dtype, call); },
      [&] { cuda::broadcast_forward(context, o, axes); });
}

void choose_forward(KernelContext& context, const ChooseForward& o) {
  check_operands("choose_forward", context, o.a, o.b, o.y);
  check_condition("choose_forward", o.condition, o.y);
  const Shape& full = o.y.shape;
  if (full.count() == 0) return;
  const Steps c = expanded_steps(o.condition.shape, full), a = expanded_steps(o.a.shape, full),
              b = expanded_steps(o.b.shape, full), y = dense_steps(full);
  Axes<4> axes;
  for (int d = 0; d < full.rank(); ++d) {
    const auto k = static_cast<std::size_t>(d);
    axes.add({full[d], {c[k], a[k], b[k], y[k]}});
  }
  const auto call = [&]<class T>(T) { choose<T>(*context.threads, o, axes); };
  dispatch(
      context, o.y.dtype, [&] { call(double{}); }, [&] { with_cpu_storage(o.y.dtype, call); },
      [&] { cuda::choose_forward(context, o, axes); });
}

void choose_backward(KernelContext& context, const ChooseBackward& o) {
  check_condition("choose_backward", o.condition, o.dy);
  const auto gradient = [&](SumTerm term, const TensorView& to, Write write) {
    if (!to) return;
    check_operands("choose_backward", context, to, to, o.dy);
    sum_to(context, {.term = term, .u = o.dy, .v = o.condition, .y = to, .write = write},
           o.dy.shape);
  };
  gradient(SumTerm::kChosen, o.da, o.da_write);
  gradient(SumTerm::kOther, o.db, o.db_write);
}

void broadcast_backward(KernelContext& context, const BroadcastBackward& o) {
  check_operands("broadcast_backward", context, o.a, o.b, o.dy);
  if (o.da) check_like("broadcast_backward", "da", o.da, o.a);
  if (o.db) check_like("broadcast_backward", "db", o.db, o.b);
  StridedSum a{.u = o.dy, .y = o.da, .kept = {}, .summed = {}, .write = o.da_write};
  StridedSum b{.u = o.dy, .y = o.db, .kept = {}, .summed = {}, .write = o.db_write};
  if (o.kind == BinaryKind::kSubtract) b.term = SumTerm::kNegative;
  if (o.kind == BinaryKind::kMultiply || o.kind == BinaryKind::kDivide) {
    const bool divides = o.kind == BinaryKind::kDivide;
    a.term = divides ? SumTerm::kQuotient : SumTerm::kProduct;
    b.term = divides ? SumTerm::kDivisor : SumTerm::kProduct;
    a.v = o.b;
    b.v = o.a;
    if (divides) b.w = o.b;
  }
  if (o.da) sum_to(context, a, o.dy.shape);
  if (o.db) sum_to(context, b, o.dy.shape);
}

}  // namespace engine::ops
