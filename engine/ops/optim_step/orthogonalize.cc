// Newton-Schulz iterations with ordered products.
#include "engine/ops/optim_step/orthogonalize.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/optim_step/optimizer_step.h"
#include "engine/ops/optim_step/orthogonalize_cpu.h"
#include "engine/ops/optim_step/orthogonalize_cuda.h"

namespace engine::ops {
namespace {

void multiply(const OrderedProduct<float>& p, ThreadPool& threads) {
  isa_table_of_ordered_product_table().run(p, threads);
}

void multiply(const OrderedProduct<double>& p, ThreadPool& threads) {
  threads.run(p.m, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i)
      for (std::int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < p.k; ++k) sum += p.a[i * p.k + k] * p.b[k * p.n + j];
        sum *= p.product;
        p.c[i * p.n + j] = p.d != nullptr ? sum + p.own * p.d[i * p.n + j] : sum;
      }
  });
}

template <class T>
void transpose(const T* from, std::int64_t rows, std::int64_t columns, T* to, ThreadPool& threads) {
  threads.run(columns, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t j = first; j < last; ++j)
      for (std::int64_t i = 0; i < rows; ++i) to[j * rows + i] = from[i * columns + j];
  });
}

// x [r, c], r <= c; xt and y have its size, a and b that of x x^T.
template <class T>
struct Iteration {
  std::int64_t r, c;
  T *x, *xt, *y, *a, *b;
};

// Returns the address of the result.
template <class T>
T* iterate(int steps, Iteration<T> m, ThreadPool& threads) {
  for (int step = 0; step < steps; ++step) {
    transpose(m.x, m.r, m.c, m.xt, threads);
    multiply({m.r, m.r, m.c, m.x, m.xt, m.a, T(1), T(0), nullptr}, threads);
    multiply(
        {m.r, m.r, m.r, m.a, m.a, m.b, T(NewtonSchulz::kQuintic), T(NewtonSchulz::kCubic), m.a},
        threads);
    multiply({m.r, m.c, m.r, m.b, m.x, m.y, T(1), T(NewtonSchulz::kLinear), m.x}, threads);
    std::swap(m.x, m.y);
  }
  return m.x;
}

// The size of a part of the scratch, rounded up to a multiple of 64 bytes.
std::size_t padded(std::int64_t count, DType dtype) {
  return (static_cast<std::size_t>(count) * size_of(dtype) + 63) / 64 * 64;
}

template <class T>
void orthogonalize_as(KernelContext& context, int steps, std::int64_t rows, std::int64_t columns,
                      TensorView matrix) {
  const double norm = std::sqrt(sum_of_squares(context, matrix));
  const T by = static_cast<T>(norm + NewtonSchulz::kEps);
  T* values = static_cast<T*>(matrix.data);
  std::byte* free = context.scratch.data();
  const auto take = [&](std::int64_t count) {
    T* part = reinterpret_cast<T*>(free);
    free += padded(count, matrix.dtype);
    return part;
  };
  const std::int64_t count = rows * columns, r = std::min(rows, columns),
                     c = std::max(rows, columns);
  const Iteration<T> m{.r = r,
                       .c = c,
                       .x = take(count),
                       .xt = take(count),
                       .y = take(count),
                       .a = take(r * r),
                       .b = take(r * r)};
  context.threads->run(count, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i) values[i] /= by;
  });
  if (rows > columns)
    transpose(values, rows, columns, m.x, *context.threads);
  else
    std::copy_n(values, count, m.x);
  const T* result = iterate(steps, m, *context.threads);
  if (rows > columns)
    transpose(result, r, c, values, *context.threads);
  else
    std::copy_n(result, count, values);
}

}  // namespace

std::size_t orthogonalize_scratch_bytes(std::int64_t rows, std::int64_t columns, DType dtype,
                                        Device::Kind device) {
  const std::int64_t side = std::min(rows, columns);
  return dispatch_device(
      device, [&] { return 3 * padded(rows * columns, dtype) + 2 * padded(side * side, dtype); },
      [&] { return cuda::orthogonalize_scratch_bytes(rows, columns, dtype); });
}

void orthogonalize(KernelContext& context, int steps, TensorView matrix) {
  check_floating("orthogonalize", "matrix", matrix);
  if (matrix.shape.rank() != 2)
    throw ShapeError("orthogonalize: expected a matrix, got " + matrix.shape.to_string());
  const std::int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  check_context("orthogonalize", context,
                orthogonalize_scratch_bytes(rows, columns, matrix.dtype, context.device.kind));
  if (rows * columns == 0) return;
  dispatch(
      context, matrix.dtype,
      [&] { orthogonalize_as<double>(context, steps, rows, columns, matrix); },
      [&] { orthogonalize_as<float>(context, steps, rows, columns, matrix); },
      [&] { cuda::orthogonalize(context, steps, matrix); });
}

}  // namespace engine::ops
