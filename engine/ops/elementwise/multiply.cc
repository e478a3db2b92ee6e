// Checks and dispatches products, and computes them in float64.
#include "engine/ops/elementwise/multiply.h"

#include <string>

#include "engine/core/error.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/common/rows.h"
#include "engine/ops/elementwise/elementwise_cuda.h"
#include "engine/ops/elementwise/multiply_cpu.h"

namespace engine::ops {
namespace {

const MultiplyTable& table_for(DType dtype) { return ENGINE_TABLE_FOR(dtype, multiply_table); }

MultiplySizes check_factors(const char* kernel, const KernelContext& context, const TensorView& a,
                            const TensorView& b) {
  check_context(kernel, context);
  check_stored(kernel, "a", a);
  check_dtype(kernel, "b", b, a.dtype);
  const Shape& s = a.shape;
  if (s == b.shape) {
    const RowSizes rows = row_sizes(a);
    return {rows.rows, 1, rows.width};
  }
  if (s.rank() == 4 && (b.shape == Shape{s[0], s[3]} || b.shape == Shape{s[0], 1, 1, s[3]}))
    return {s[0], s[1] * s[2], s[3]};
  throw ShapeError(std::string(kernel) + ": a has the shape " + s.to_string() + ", b " +
                   b.shape.to_string() + ": expected the same, or [n, channels]");
}

// Calls body(i, k) for each element i of the wide factor, which element k of the narrow one
// belongs to; threads share the samples.
template <class Body>
void for_each_product(KernelContext& context, const MultiplySizes& s, Body body) {
  context.threads->run(s.n, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t row = first * s.pixels; row < last * s.pixels; ++row)
      for (std::int64_t c = 0; c < s.channels; ++c)
        body(row * s.channels + c, row / s.pixels * s.channels + c);
  });
}

// to = wide * narrow.
void scale_f64(KernelContext& context, const TensorView& wide, const TensorView& narrow,
               const MultiplySizes& s, const TensorView& to, Write write) {
  const double *source = wide.as<double>(), *factors = narrow.as<double>();
  double* target = to.as<double>();
  for_each_product(context, s, [=](std::int64_t i, std::int64_t k) {
    target[i] = (write == Write::kAdd ? target[i] : 0) + source[i] * factors[k];
  });
}

// to = the sum of a * b over the pixels.
void sum_f64(KernelContext& context, const TensorView& a, const TensorView& b,
             const MultiplySizes& s, const TensorView& to, Write write) {
  const double *first = a.as<double>(), *second = b.as<double>();
  double* target = to.as<double>();
  if (write == Write::kOverwrite)
    for (double& value : to.span<double>()) value = 0;
  for_each_product(context, s,
                   [=](std::int64_t i, std::int64_t k) { target[k] += first[i] * second[i]; });
}

}  // namespace

void multiply_forward(KernelContext& context, const Multiply& o) {
  const MultiplySizes s = check_factors("multiply_forward", context, o.a, o.b);
  check_like("multiply_forward", "y", o.y, o.a);
  dispatch(
      context, o.a.dtype, [&] { scale_f64(context, o.a, o.b, s, o.y, Write::kOverwrite); },
      [&] { table_for(o.a.dtype).scale(o.a, o.b, s, o.y, /*add=*/false, *context.threads); },
      [&] { cuda::multiply_channels(context, o.a, o.b, s.pixels, o.y, Write::kOverwrite); });
}

void multiply_backward(KernelContext& context, const MultiplyBackward& o) {
  const MultiplySizes s = check_factors("multiply_backward", context, o.a, o.b);
  check_like("multiply_backward", "dy", o.dy, o.a);
  if (o.da) check_like("multiply_backward", "da", o.da, o.a);
  if (o.db) check_like("multiply_backward", "db", o.db, o.b);
  dispatch(
      context, o.a.dtype,
      [&] {
        if (o.da) scale_f64(context, o.dy, o.b, s, o.da, o.da_write);
        if (o.db) sum_f64(context, o.dy, o.a, s, o.db, o.db_write);
      },
      [&] {
        const MultiplyTable& table = table_for(o.a.dtype);
        const bool add_a = o.da_write == Write::kAdd, add_b = o.db_write == Write::kAdd;
        if (o.da) table.scale(o.dy, o.b, s, o.da, add_a, *context.threads);
        if (o.db) table.sum(o.dy, o.a, s, o.db, add_b, *context.threads);
      },
      [&] {
        if (o.da) cuda::multiply_channels(context, o.dy, o.b, s.pixels, o.da, o.da_write);
        if (o.db) cuda::multiply_sums(context, o.dy, o.a, s.pixels, o.db, o.db_write);
      });
}

}  // namespace engine::ops
