// Checks and dispatches pooling.
#include "engine/ops/pool/pool2d.h"

#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/pool/pool2d_cpu.h"
#include "engine/ops/pool/pool2d_cuda.h"
#include "engine/ops/pool/pool2d_reference.h"

namespace engine::ops {
namespace {

void check_geometry(std::string_view kernel, const Pool2dGeometry& g) {
  const bool sound = g.in_h >= 1 && g.in_w >= 1 && g.channels >= 1 && g.window >= 1 &&
                     g.window <= 15 && g.stride >= 1 && g.padding >= 0 && g.padding <= g.window / 2;
  if (sound && g.out_h() >= 1 && g.out_w() >= 1) return;
  throw ShapeError(std::string(kernel) + ": window " + std::to_string(g.window) + ", stride " +
                   std::to_string(g.stride) + ", padding " + std::to_string(g.padding) +
                   " do not fit the input " + Shape{g.in_h, g.in_w, g.channels}.to_string() +
                   ": expected 1 <= window <= 15, padding <= window / 2, and a window no larger "
                   "than the padded input");
}

// Returns n.
std::int64_t check_planes(std::string_view kernel, const Pool2dGeometry& g,
                          std::string_view large_name, const TensorView& large,
                          std::string_view small_name, const TensorView& small) {
  check_geometry(kernel, g);
  const std::int64_t n = large.shape.rank() > 0 ? large.shape[0] : 0;
  check_stored(kernel, large_name, large);
  check_shape(kernel, large_name, large, {n, g.in_h, g.in_w, g.channels});
  check_dtype(kernel, small_name, small, large.dtype);
  check_shape(kernel, small_name, small, {n, g.out_h(), g.out_w(), g.channels});
  return n;
}

PoolSizes sizes_of(const Pool2dGeometry& g, std::int64_t n) {
  return {n, g.in_h, g.in_w, g.channels, g.out_h(), g.out_w(), g.window, g.stride, g.padding};
}

const Pool2dTable& fast_for(DType dtype) { return ENGINE_TABLE_FOR(dtype, pool2d_table); }

GlobalSizes check_global(std::string_view kernel, std::string_view large_name,
                         const TensorView& large, std::string_view small_name,
                         const TensorView& small) {
  check_stored(kernel, large_name, large);
  if (large.shape.rank() != 4 || large.shape[1] * large.shape[2] < 1) {
    throw ShapeError(std::string(kernel) + ": " + std::string(large_name) + " has the shape " +
                     large.shape.to_string() + ", expected [n, h >= 1, w >= 1, c]");
  }
  check_dtype(kernel, small_name, small, large.dtype);
  check_shape(kernel, small_name, small, {large.shape[0], large.shape[3]});
  return {large.shape[0], large.shape[1] * large.shape[2], large.shape[3]};
}

}  // namespace

void max_pool2d_forward(KernelContext& context, const MaxPool2dForward& o) {
  constexpr std::string_view kName = "max_pool2d_forward";
  const std::int64_t n = check_planes(kName, o.geometry, "x", o.x, "y", o.y);
  if (o.argmax) {
    check_dtype(kName, "argmax", o.argmax, DType::kU8);
    check_shape(kName, "argmax", o.argmax, o.y.shape);
  }
  check_context(kName, context);
  dispatch(
      context, o.x.dtype, [&] { reference::max_pool2d_forward<double>(o); },
      [&] { fast_for(o.x.dtype).max_forward(o, sizes_of(o.geometry, n), *context.threads); },
      [&] { cuda::max_pool2d_forward(context, o); });
}

void max_pool2d_backward(KernelContext& context, const MaxPool2dBackward& o) {
  constexpr std::string_view kName = "max_pool2d_backward";
  const std::int64_t n = check_planes(kName, o.geometry, "dx", o.dx, "dy", o.dy);
  check_dtype(kName, "argmax", o.argmax, DType::kU8);
  check_shape(kName, "argmax", o.argmax, o.dy.shape);
  check_context(kName, context);
  dispatch(
      context, o.dx.dtype, [&] { reference::max_pool2d_backward<double>(o); },
      [&] { fast_for(o.dx.dtype).max_backward(o, sizes_of(o.geometry, n), *context.threads); },
      [&] { cuda::max_pool2d_backward(context, o); });
}

void average_pool2d_forward(KernelContext& context, const AveragePool2dForward& o) {
  constexpr std::string_view kName = "average_pool2d_forward";
  const std::int64_t n = check_planes(kName, o.geometry, "x", o.x, "y", o.y);
  check_context(kName, context);
  dispatch(
      context, o.x.dtype, [&] { reference::average_pool2d_forward<double>(o); },
      [&] { fast_for(o.x.dtype).average_forward(o, sizes_of(o.geometry, n), *context.threads); },
      [&] { cuda::average_pool2d_forward(context, o); });
}

void average_pool2d_backward(KernelContext& context, const AveragePool2dBackward& o) {
  constexpr std::string_view kName = "average_pool2d_backward";
  const std::int64_t n = check_planes(kName, o.geometry, "dx", o.dx, "dy", o.dy);
  check_context(kName, context);
  dispatch(
      context, o.dx.dtype, [&] { reference::average_pool2d_backward<double>(o); },
      [&] { fast_for(o.dx.dtype).average_backward(o, sizes_of(o.geometry, n), *context.threads); },
      [&] { cuda::average_pool2d_backward(context, o); });
}

void global_average_pool_forward(KernelContext& context, TensorView x, TensorView y) {
  constexpr std::string_view kName = "global_average_pool_forward";
  const GlobalSizes e = check_global(kName, "x", x, "y", y);
  check_context(kName, context);
  dispatch(
      context, x.dtype,
      [&] {
        reference::global_average_pool_forward(e.n, e.pixels, e.channels, x.as<double>(),
                                               y.as<double>());
      },
      [&] { fast_for(x.dtype).global_forward(x, y, e, *context.threads); },
      [&] { cuda::global_average_pool_forward(context, e.n, e.pixels, e.channels, x, y); });
}

void global_average_pool_backward(KernelContext& context, TensorView dy, TensorView dx,
                                  Write write) {
  constexpr std::string_view kName = "global_average_pool_backward";
  const GlobalSizes e = check_global(kName, "dx", dx, "dy", dy);
  check_context(kName, context);
  dispatch(
      context, dx.dtype,
      [&] {
        reference::global_average_pool_backward(e.n, e.pixels, e.channels, dy.as<double>(),
                                                dx.as<double>(), write);
      },
      [&] {
        fast_for(dx.dtype).global_backward(dy, dx, e, write == Write::kAdd, *context.threads);
      },
      [&] {
        cuda::global_average_pool_backward(context, e.n, e.pixels, e.channels, dy, dx, write);
      });
}

}  // namespace engine::ops
