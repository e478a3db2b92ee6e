// Convolution: checks and dispatch.
#include "engine/ops/conv2d/conv2d.h"

#include <algorithm>
#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/conv2d/conv2d_cpu.h"
#include "engine/ops/conv2d/conv2d_cuda.h"
#include "engine/ops/conv2d/conv2d_f64_cpu.h"
#include "engine/ops/conv2d/conv2d_reference.h"

namespace engine::ops {
namespace {

void check_geometry(const char* kernel, const Conv2dGeometry& g) {
  const bool sizes = g.in_h > 0 && g.in_w > 0 && g.in_channels > 0 && g.out_channels > 0 &&
                     g.kernel_h > 0 && g.kernel_w > 0;
  if (sizes && g.stride > 0 && g.padding >= 0 && g.in_h + 2 * g.padding >= g.kernel_h &&
      g.in_w + 2 * g.padding >= g.kernel_w)
    return;
  throw ShapeError(std::string(kernel) + ": no output for an input of [" + std::to_string(g.in_h) +
                   ", " + std::to_string(g.in_w) + ", " + std::to_string(g.in_channels) +
                   "] with a kernel of " + std::to_string(g.kernel_h) + " x " +
                   std::to_string(g.kernel_w) + ", stride " + std::to_string(g.stride) +
                   ", padding " + std::to_string(g.padding) + " and " +
                   std::to_string(g.out_channels) + " output channels");
}

// Checks the operands that every call has; returns n.
std::int64_t check_operands(const char* kernel, const Conv2dGeometry& g, const char* input_name,
                            const TensorView& input, const char* output_name,
                            const TensorView& output, const char* weight_name,
                            const TensorView& weight, DType weight_dtype) {
  check_geometry(kernel, g);
  if (input.shape.rank() != 4) {
    throw ShapeError(std::string(kernel) + ": " + input_name + " has the shape " +
                     input.shape.to_string() + ", expected [n, h, w, channels]");
  }
  const std::int64_t n = input.shape[0];
  check_floating(kernel, input_name, input);
  check_shape(kernel, input_name, input, {n, g.in_h, g.in_w, g.in_channels});
  check_dtype(kernel, weight_name, weight, weight_dtype);
  check_shape(kernel, weight_name, weight, {g.kernel_h, g.kernel_w, g.in_channels, g.out_channels});
  check_dtype(kernel, output_name, output, input.dtype);
  check_shape(kernel, output_name, output, {n, g.out_h(), g.out_w(), g.out_channels});
  return n;
}

void check_bias(const char* kernel, const char* name, const Conv2dGeometry& g,
                const TensorView& bias, DType dtype) {
  if (!bias) return;
  check_dtype(kernel, name, bias, dtype);
  check_shape(kernel, name, bias, {g.out_channels});
}

// Of bias and of gradients of parameters.
DType sum_dtype(const KernelContext& context, DType activations) {
  return on_cuda(context) ? DType::kF32 : activations;
}

void check_scratch(const char* kernel, const KernelContext& context, const Conv2dGeometry& g,
                   std::int64_t n, DType dtype) {
  check_context(kernel, context);
  const int threads = on_cuda(context) ? 1 : context.threads->threads();
  check_context(kernel, context, conv2d_scratch_bytes(g, n, dtype, threads, context.device.kind));
}

ConvSizes sizes_of(const Conv2dGeometry& g, std::int64_t n) {
  return {n,          g.in_h,     g.in_w,   g.in_channels, g.out_h(), g.out_w(), g.out_channels,
          g.kernel_h, g.kernel_w, g.stride, g.padding};
}

// The fast kernels sort pixels into stride * stride classes and have room for 16.
bool has_fast_kernel(const Conv2dGeometry& g, DType dtype) {
  return dtype == DType::kF32 && g.stride <= 4;
}

float* scratch_floats(const KernelContext& context) {
  return reinterpret_cast<float*>(context.scratch.data());
}
double* scratch_doubles(const KernelContext& context) {
  return reinterpret_cast<double*>(context.scratch.data());
}
const Conv2dF64Table& f64() { return isa_table_of_conv2d_f64_table(); }

template <class T>
void backward_bias_reference(const Conv2dGeometry& g, TensorView dy, TensorView dbias,
                             Write write) {
  if (dbias)
    conv2d_backward_bias_reference(dy.shape[0] * g.out_h() * g.out_w(), g.out_channels, dy.as<T>(),
                                   dbias.as<T>(), write);
}

// What runs in f32 for strides that have no fast kernel.
void forward_reference(KernelContext& context, const Conv2dGeometry& g, TensorView x,
                       TensorView weight, TensorView bias, TensorView y) {
  context.threads->run(x.shape[0], [&](std::int64_t first, std::int64_t last, int) {
    conv2d_forward_reference(g, first, last, x.as<float>(), weight.as<float>(), bias.as<float>(),
                             y.as<float>());
  });
}

void backward_data_reference(KernelContext& context, const Conv2dGeometry& g, TensorView dy,
                             TensorView weight, TensorView dx, Write write) {
  context.threads->run(dx.shape[0], [&](std::int64_t first, std::int64_t last, int) {
    conv2d_backward_data_reference(g, first, last, dy.as<float>(), weight.as<float>(),
                                   dx.as<float>(), write);
  });
}

void backward_weights_reference(KernelContext& context, const Conv2dGeometry& g, TensorView x,
                                TensorView dy, TensorView dweight, TensorView dbias, Write write) {
  context.threads->run(
      g.kernel_h * g.kernel_w * g.in_channels, [&](std::int64_t first, std::int64_t last, int) {
        conv2d_backward_weights_reference(g, first, last, x.shape[0], x.as<float>(), dy.as<float>(),
                                          dweight.as<float>(), write);
      });
  backward_bias_reference<float>(g, dy, dbias, write);
}

}  // namespace

std::size_t conv2d_scratch_bytes(const Conv2dGeometry& geometry, std::int64_t n, DType dtype,
                                 int threads, Device::Kind device) {
  const auto on_cpu = [&]() -> std::size_t {
    const ConvSizes sizes = sizes_of(geometry, n);
    if (dtype == DType::kF64)
      return static_cast<std::size_t>(f64().scratch(sizes, threads)) * sizeof(double);
    if (!has_fast_kernel(geometry, dtype)) return 0;
    const std::int64_t floats =
        std::max({isa_table_of_conv2d_table().forward_scratch(sizes, threads),
                  isa_table_of_conv2d_table().backward_data_scratch(sizes, threads),
                  isa_table_of_conv2d_weights_table().scratch(sizes, threads)});
    return static_cast<std::size_t>(floats) * sizeof(float);
  };
  return dispatch_device(device, on_cpu,
                         [&] { return cuda::conv2d_scratch_bytes(geometry, n, dtype); });
}

void conv2d_forward(KernelContext& context, const Conv2dGeometry& geometry, TensorView x,
                    TensorView weight, TensorView bias, TensorView y) {
  constexpr const char* kName = "conv2d_forward";
  const std::int64_t n = check_operands(kName, geometry, "x", x, "y", y, "weight", weight, x.dtype);
  check_bias(kName, "bias", geometry, bias, sum_dtype(context, x.dtype));
  check_scratch(kName, context, geometry, n, x.dtype);
  dispatch(
      context, x.dtype,
      [&] {
        f64().forward(sizes_of(geometry, n), x.as<double>(), weight.as<double>(), bias.as<double>(),
                      y.as<double>(), *context.threads, scratch_doubles(context));
      },
      [&] {
        if (!has_fast_kernel(geometry, x.dtype))
          return forward_reference(context, geometry, x, weight, bias, y);
        isa_table_of_conv2d_table().forward(sizes_of(geometry, n), x.as<float>(),
                                            weight.as<float>(), bias.as<float>(), y.as<float>(),
                                            *context.threads, scratch_floats(context));
      },
      [&] { cuda::conv2d_forward(context, geometry, x, weight, bias, y); });
}

void conv2d_backward_data(KernelContext& context, const Conv2dGeometry& geometry, TensorView dy,
                          TensorView weight, TensorView dx, Write write) {
  constexpr const char* kName = "conv2d_backward_data";
  const std::int64_t n =
      check_operands(kName, geometry, "dx", dx, "dy", dy, "weight", weight, dx.dtype);
  check_scratch(kName, context, geometry, n, dx.dtype);
  dispatch(
      context, dx.dtype,
      [&] {
        f64().backward_data(sizes_of(geometry, n), dy.as<double>(), weight.as<double>(),
                            dx.as<double>(), write == Write::kAdd, *context.threads,
                            scratch_doubles(context));
      },
      [&] {
        if (!has_fast_kernel(geometry, dx.dtype))
          return backward_data_reference(context, geometry, dy, weight, dx, write);
        isa_table_of_conv2d_table().backward_data(
            sizes_of(geometry, n), dy.as<float>(), weight.as<float>(), dx.as<float>(),
            write == Write::kAdd, *context.threads, scratch_floats(context));
      },
      [&] { cuda::conv2d_backward_data(context, geometry, dy, weight, dx, write); });
}

void conv2d_backward_weights(KernelContext& context, const Conv2dGeometry& geometry, TensorView x,
                             TensorView dy, TensorView dweight, TensorView dbias, Write write) {
  constexpr const char* kName = "conv2d_backward_weights";
  const DType gradient = sum_dtype(context, x.dtype);
  const std::int64_t n =
      check_operands(kName, geometry, "x", x, "dy", dy, "dweight", dweight, gradient);
  check_bias(kName, "dbias", geometry, dbias, gradient);
  check_scratch(kName, context, geometry, n, x.dtype);
  dispatch(
      context, x.dtype,
      [&] {
        f64().backward_weights(sizes_of(geometry, n), x.as<double>(), dy.as<double>(),
                               dweight.as<double>(), write == Write::kAdd, *context.threads,
                               scratch_doubles(context));
        backward_bias_reference<double>(geometry, dy, dbias, write);
      },
      [&] {
        if (!has_fast_kernel(geometry, x.dtype))
          return backward_weights_reference(context, geometry, x, dy, dweight, dbias, write);
        isa_table_of_conv2d_weights_table().run(
            sizes_of(geometry, n), x.as<float>(), dy.as<float>(), dweight.as<float>(),
            dbias.as<float>(), write == Write::kAdd, *context.threads, scratch_floats(context));
      },
      [&] { cuda::conv2d_backward_weights(context, geometry, x, dy, dweight, dbias, write); });
}

}  // namespace engine::ops
