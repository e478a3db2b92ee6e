// Checks and dispatch of pooling.
#include "engine/ops/pool/pool2d.h"

#include <string>

#include "engine/core/cuda.h"
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
  check_floating(kernel, large_name, large);
  check_shape(kernel, large_name, large, {n, g.in_h, g.in_w, g.channels});
  check_dtype(kernel, small_name, small, large.dtype);
  check_shape(kernel, small_name, small, {n, g.out_h(), g.out_w(), g.channels});
  return n;
}

PoolSizes sizes_of(const Pool2dGeometry& g, std::int64_t n) {
  return {n, g.in_h, g.in_w, g.channels, g.out_h(), g.out_w(), g.window, g.stride, g.padding};
}

const Pool2dTable& fast() { return isa_table_of_pool2d_table(); }

struct GlobalExtents {
  std::int64_t n, pixels, channels;
};

GlobalExtents check_global(std::string_view kernel, std::string_view large_name,
                           const TensorView& large, std::string_view small_name,
                           const TensorView& small) {
  check_floating(kernel, large_name, large);
  if (large.shape.rank() != 4 || large.shape[1] * large.shape[2] < 1) {
    throw ShapeError(std::string(kernel) + ": " + std::string(large_name) + " has the shape " +
                     large.shape.to_string() + ", expected [n, h >= 1, w >= 1, c]");
  }
  check_dtype(kernel, small_name, small, large.dtype);
  check_shape(kernel, small_name, small, {large.shape[0], large.shape[3]});
  return {large.shape[0], large.shape[1] * large.shape[2], large.shape[3]};
}

}  // namespace

void max_pool2d_forward(KernelContext& context, const Pool2dGeometry& geometry, TensorView x,
                        TensorView y, TensorView argmax) {
  constexpr std::string_view kName = "max_pool2d_forward";
  const std::int64_t n = check_planes(kName, geometry, "x", x, "y", y);
  if (argmax) {
    check_dtype(kName, "argmax", argmax, DType::kU8);
    check_shape(kName, "argmax", argmax, y.shape);
  }
  check_context(kName, context);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context)) return cuda::max_pool2d_forward(context, geometry, n, x, y, argmax);
  }
  std::uint8_t* winners = argmax ? argmax.as<std::uint8_t>() : nullptr;
  if (x.dtype == DType::kF32) {
    fast().max_forward(sizes_of(geometry, n), x.as<float>(), y.as<float>(), winners,
                       *context.threads);
  } else {
    reference::max_pool2d_forward(geometry, n, x.as<double>(), y.as<double>(), winners);
  }
}

void max_pool2d_backward(KernelContext& context, const Pool2dGeometry& geometry, TensorView dy,
                         TensorView argmax, TensorView dx, Write write) {
  constexpr std::string_view kName = "max_pool2d_backward";
  const std::int64_t n = check_planes(kName, geometry, "dx", dx, "dy", dy);
  check_dtype(kName, "argmax", argmax, DType::kU8);
  check_shape(kName, "argmax", argmax, dy.shape);
  check_context(kName, context);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context))
      return cuda::max_pool2d_backward(context, geometry, n, dy, argmax, dx, write);
  }
  const std::uint8_t* winners = argmax.as<std::uint8_t>();
  if (dx.dtype == DType::kF32) {
    fast().max_backward(sizes_of(geometry, n), dy.as<float>(), winners, dx.as<float>(),
                        write == Write::kAdd, *context.threads);
  } else {
    reference::max_pool2d_backward(geometry, n, dy.as<double>(), winners, dx.as<double>(), write);
  }
}

void average_pool2d_forward(KernelContext& context, const Pool2dGeometry& geometry, TensorView x,
                            TensorView y) {
  constexpr std::string_view kName = "average_pool2d_forward";
  const std::int64_t n = check_planes(kName, geometry, "x", x, "y", y);
  check_context(kName, context);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context)) return cuda::average_pool2d_forward(context, geometry, n, x, y);
  }
  if (x.dtype == DType::kF32) {
    fast().average_forward(sizes_of(geometry, n), x.as<float>(), y.as<float>(), *context.threads);
  } else {
    reference::average_pool2d_forward(geometry, n, x.as<double>(), y.as<double>());
  }
}

void average_pool2d_backward(KernelContext& context, const Pool2dGeometry& geometry, TensorView dy,
                             TensorView dx, Write write) {
  constexpr std::string_view kName = "average_pool2d_backward";
  const std::int64_t n = check_planes(kName, geometry, "dx", dx, "dy", dy);
  check_context(kName, context);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context)) return cuda::average_pool2d_backward(context, geometry, n, dy, dx, write);
  }
  if (dx.dtype == DType::kF32) {
    fast().average_backward(sizes_of(geometry, n), dy.as<float>(), dx.as<float>(),
                            write == Write::kAdd, *context.threads);
  } else {
    reference::average_pool2d_backward(geometry, n, dy.as<double>(), dx.as<double>(), write);
  }
}

void global_average_pool_forward(KernelContext& context, TensorView x, TensorView y) {
  constexpr std::string_view kName = "global_average_pool_forward";
  const auto [n, pixels, channels] = check_global(kName, "x", x, "y", y);
  check_context(kName, context);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context))
      return cuda::global_average_pool_forward(context, n, pixels, channels, x, y);
  }
  if (x.dtype == DType::kF32) {
    fast().global_forward(n, pixels, channels, x.as<float>(), y.as<float>(), *context.threads);
  } else {
    reference::global_average_pool_forward(n, pixels, channels, x.as<double>(), y.as<double>());
  }
}

void global_average_pool_backward(KernelContext& context, TensorView dy, TensorView dx,
                                  Write write) {
  constexpr std::string_view kName = "global_average_pool_backward";
  const auto [n, pixels, channels] = check_global(kName, "dx", dx, "dy", dy);
  check_context(kName, context);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context))
      return cuda::global_average_pool_backward(context, n, pixels, channels, dy, dx, write);
  }
  if (dx.dtype == DType::kF32) {
    fast().global_backward(n, pixels, channels, dy.as<float>(), dx.as<float>(),
                           write == Write::kAdd, *context.threads);
  } else {
    reference::global_average_pool_backward(n, pixels, channels, dy.as<double>(), dx.as<double>(),
                                            write);
  }
}

}  // namespace engine::ops
