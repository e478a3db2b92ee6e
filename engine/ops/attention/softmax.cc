// Checks and dispatches the softmax of rows, and computes it in float64.
#include "engine/ops/attention/softmax.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/ops/attention/softmax_cpu.h"
#include "engine/ops/attention/softmax_cuda.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"

namespace engine::ops {
namespace {

RowSizes check_rows(const char* kernel, const char* operand, const TensorView& x) {
  check_floating(kernel, operand, x);
  if (x.shape.rank() < 1)
    throw ShapeError(std::string(kernel) + ": " + operand + " has the shape " +
                     x.shape.to_string() + ", expected [rows..., width]");
  return row_sizes(x);
}

void forward_row(const double* x, std::int64_t width, double* y) {
  const double largest = *std::max_element(x, x + width);
  double sum = 0;
  for (std::int64_t c = 0; c < width; ++c) sum += y[c] = std::exp(x[c] - largest);
  for (std::int64_t c = 0; c < width; ++c) y[c] /= sum;
}

void backward_row(const double* y, const double* dy, std::int64_t width, bool add, double* dx) {
  double sum = 0;
  for (std::int64_t c = 0; c < width; ++c) sum += y[c] * dy[c];
  for (std::int64_t c = 0; c < width; ++c) dx[c] = (add ? dx[c] : 0) + y[c] * (dy[c] - sum);
}

}  // namespace

void softmax_forward(KernelContext& context, TensorView x, TensorView y) {
  constexpr const char* kName = "softmax_forward";
  const RowSizes s = check_rows(kName, "x", x);
  check_like(kName, "y", y, x);
  check_context(kName, context);
  dispatch(
      context, x.dtype,
      [&] {
        context.threads->run(s.rows, [&](std::int64_t first, std::int64_t last, int) {
          for (std::int64_t r = first; r < last; ++r)
            forward_row(x.as<double>() + r * s.width, s.width, y.as<double>() + r * s.width);
        });
      },
      [&] {
        isa_table_of_softmax_table().forward(x.as<float>(), s, y.as<float>(), *context.threads);
      },
      [&] { cuda::softmax_forward(context, x, y); });
}

void softmax_backward(KernelContext& context, TensorView y, TensorView dy, TensorView dx,
                      Write write) {
  constexpr const char* kName = "softmax_backward";
  const RowSizes s = check_rows(kName, "y", y);
  check_like(kName, "dy", dy, y);
  check_like(kName, "dx", dx, y);
  check_context(kName, context);
  const bool add = write == Write::kAdd;
  dispatch(
      context, y.dtype,
      [&] {
        context.threads->run(s.rows, [&](std::int64_t first, std::int64_t last, int) {
          for (std::int64_t at = first * s.width; at < last * s.width; at += s.width)
            backward_row(y.as<double>() + at, dy.as<double>() + at, s.width, add,
                         dx.as<double>() + at);
        });
      },
      [&] {
        isa_table_of_softmax_table().backward(y.as<float>(), dy.as<float>(), s, dx.as<float>(), add,
                                              *context.threads);
      },
      [&] { cuda::softmax_backward(context, y, dy, dx, write); });
}

}  // namespace engine::ops
