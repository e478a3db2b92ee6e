// Checks and dispatches convolution.
#include "engine/ops/conv2d/conv2d.h"

#include <algorithm>
#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/conv2d/conv2d_cpu.h"
#include "engine/ops/conv2d/conv2d_cuda.h"
#include "engine/ops/conv2d/conv2d_f64_cpu.h"
#include "engine/ops/conv2d/conv2d_reference.h"
#include "engine/ops/conv2d/grouped_conv2d_cpu.h"
#include "engine/ops/conv2d/winograd_cpu.h"
#include "engine/ops/conv2d/winograd_rule.h"

namespace engine::ops {
namespace {

void check_geometry(const char* kernel, const Conv2dGeometry& g) {
  const bool sizes = g.in_h > 0 && g.in_w > 0 && g.in_channels > 0 && g.out_channels > 0 &&
                     g.kernel_h > 0 && g.kernel_w > 0 && g.groups > 0;
  if (sizes && g.in_channels % g.groups == 0 && g.out_channels % g.groups == 0 && g.stride > 0 &&
      g.padding >= 0 && g.in_h + 2 * g.padding >= g.kernel_h &&
      g.in_w + 2 * g.padding >= g.kernel_w)
    return;
  throw ShapeError(std::string(kernel) + ": no output for an input of [" + std::to_string(g.in_h) +
                   ", " + std::to_string(g.in_w) + ", " + std::to_string(g.in_channels) +
                   "] with a kernel of " + std::to_string(g.kernel_h) + " x " +
                   std::to_string(g.kernel_w) + ", stride " + std::to_string(g.stride) +
                   ", padding " + std::to_string(g.padding) + " and " +
                   std::to_string(g.out_channels) + " output channels" +
                   (g.groups == 1 ? "" : " in " + std::to_string(g.groups) + " groups"));
}

struct Named {
  const char* name;
  const TensorView& view;
};

// Checks the operands that all calls share; returns n.
std::int64_t check_operands(const char* kernel, const Conv2dGeometry& g, const Named& input,
                            const Named& output, const Named& weight, DType weight_dtype) {
  check_geometry(kernel, g);
  const Shape& shape = input.view.shape;
  if (shape.rank() != 4) {
    throw ShapeError(std::string(kernel) + ": " + input.name + " has the shape " +
                     shape.to_string() + ", expected [n, h, w, channels]");
  }
  const std::int64_t n = shape[0];
  check_stored(kernel, input.name, input.view);
  check_shape(kernel, input.name, input.view, {n, g.in_h, g.in_w, g.in_channels});
  check_dtype(kernel, weight.name, weight.view, weight_dtype);
  check_shape(kernel, weight.name, weight.view,
              {g.kernel_h, g.kernel_w, g.in_channels / g.groups, g.out_channels});
  check_dtype(kernel, output.name, output.view, input.view.dtype);
  check_shape(kernel, output.name, output.view, {n, g.out_h(), g.out_w(), g.out_channels});
  return n;
}

void check_bias(const char* kernel, const char* name, const Conv2dGeometry& g,
                const TensorView& bias, DType dtype) {
  if (!bias) return;
  check_dtype(kernel, name, bias, dtype);
  check_shape(kernel, name, bias, {g.out_channels});
}

DType weight_dtype(const KernelContext& context, const TensorView& input) {
  return on_cuda(context) ? input.dtype : wide_dtype(input.dtype);
}

void check_scratch(const char* kernel, const KernelContext& context, const Conv2dGeometry& g,
                   std::int64_t n, DType dtype) {
  check_context(kernel, context);
  const int threads = on_cuda(context) ? 1 : context.threads->threads();
  check_context(kernel, context,
                conv2d_scratch_bytes(g, n, dtype, threads, context.device.kind, context.products));
}

ConvSizes sizes_of(const Conv2dGeometry& g, std::int64_t n) {
  return {n,          g.in_h,     g.in_w,   g.in_channels, g.out_h(), g.out_w(), g.out_channels,
          g.kernel_h, g.kernel_w, g.stride, g.padding,     g.groups};
}

// The fast kernels of one group sort pixels into stride * stride classes and have room for 16.
bool has_fast_kernel(const Conv2dGeometry& g) { return g.stride <= 4 || g.groups > 1; }

bool multiplies_in_bf16(DType dtype, Products products) {
  return dtype == DType::kBF16 || in_bf16(products);
}

bool use_winograd(const KernelContext& context, const Conv2dGeometry& g, std::int64_t n,
                  DType dtype) {
  return context.convolutions == Convolutions::kAuto &&
         suits_winograd(g, n, multiplies_in_bf16(dtype, context.products));
}
bool use_winograd_for_weights(const KernelContext& context, const Conv2dGeometry& g, std::int64_t n,
                              DType dtype) {
  return context.convolutions == Convolutions::kAuto &&
         weights_suit_winograd(g, n, multiplies_in_bf16(dtype, context.products));
}

// Returns the table of the direct kernels.
const Conv2dTable& table_for(DType dtype, Products products) {
  if (dtype == DType::kBF16) return stored_table_of_conv2d_table();
  return in_bf16(products) ? bf16_table_of_conv2d_table() : isa_table_of_conv2d_table();
}
const Conv2dWeightsTable& weights_table_for(DType dtype, Products products) {
  if (dtype == DType::kBF16) return stored_table_of_conv2d_weights_table();
  return in_bf16(products) ? bf16_table_of_conv2d_weights_table()
                           : isa_table_of_conv2d_weights_table();
}
const Conv2dTable& winograd_for(DType dtype) { return ENGINE_TABLE_FOR(dtype, winograd_table); }
const Conv2dWeightsTable& winograd_weights_for(DType dtype) {
  return ENGINE_TABLE_FOR(dtype, winograd_weights_table);
}
const Conv2dTable& grouped_for(DType dtype) {
  return ENGINE_TABLE_FOR(dtype, grouped_conv2d_table);
}
const Conv2dWeightsTable& grouped_weights_for(DType dtype) {
  return ENGINE_TABLE_FOR(dtype, grouped_conv2d_weights_table);
}

// Returns the table for operands of `dtype`, of which `n` images choose the method.
const Conv2dTable& chosen_table(const KernelContext& context, const Conv2dGeometry& g,
                                std::int64_t n, DType dtype) {
  if (g.groups > 1) return grouped_for(dtype);
  return use_winograd(context, g, n, dtype) ? winograd_for(dtype)
                                            : table_for(dtype, context.products);
}
const Conv2dWeightsTable& chosen_weights_table(const KernelContext& context,
                                               const Conv2dGeometry& g, std::int64_t n,
                                               DType dtype) {
  if (g.groups > 1) return grouped_weights_for(dtype);
  return use_winograd_for_weights(context, g, n, dtype)
             ? winograd_weights_for(dtype)
             : weights_table_for(dtype, context.products);
}

float* scratch_floats(const KernelContext& context) {
  return reinterpret_cast<float*>(context.scratch.data());
}
double* scratch_doubles(const KernelContext& context) {
  return reinterpret_cast<double*>(context.scratch.data());
}
const Conv2dF64Table& f64() { return isa_table_of_conv2d_f64_table(); }

// f32 convolutions whose stride has no fast kernel, and f64 ones of several groups.
template <class T>
void forward_reference(KernelContext& context, const Conv2dForward& o) {
  context.threads->run(o.x.shape[0], [&](std::int64_t first, std::int64_t last, int) {
    reference::conv2d_forward<T>(o, first, last);
  });
}
template <class T>
void backward_data_reference(KernelContext& context, const Conv2dBackwardData& o) {
  context.threads->run(o.dx.shape[0], [&](std::int64_t first, std::int64_t last, int) {
    reference::conv2d_backward_data<T>(o, first, last);
  });
}
template <class T>
void backward_weights_reference(KernelContext& context, const Conv2dBackwardWeights& o) {
  const Conv2dGeometry& g = o.geometry;
  context.threads->run(g.kernel_h * g.kernel_w * (g.in_channels / g.groups),
                       [&](std::int64_t first, std::int64_t last, int) {
                         reference::conv2d_backward_weights<T>(o, first, last);
                       });
  reference::conv2d_backward_bias<T>(o);
}

}  // namespace

std::size_t conv2d_scratch_bytes(const Conv2dGeometry& geometry, std::int64_t n, DType dtype,
                                 int threads, Device::Kind device, Products products) {
  const auto on_cpu = [&]() -> std::size_t {
    const ConvSizes sizes = sizes_of(geometry, n);
    if (dtype == DType::kF64 && geometry.groups > 1) return 0;
    if (dtype == DType::kF64)
      return static_cast<std::size_t>(f64().scratch(sizes, threads)) * sizeof(double);
    if (!has_fast_kernel(geometry)) return 0;
    const auto most = [&](const Conv2dTable& table, const Conv2dWeightsTable& weights) {
      return std::max({table.forward_scratch(sizes, threads),
                       table.backward_data_scratch(sizes, threads),
                       weights.scratch(sizes, threads)});
    };
    if (geometry.groups > 1)
      return static_cast<std::size_t>(most(grouped_for(dtype), grouped_weights_for(dtype))) *
             sizeof(float);
    std::int64_t floats = most(table_for(dtype, products), weights_table_for(dtype, products));
    const bool bf16 = multiplies_in_bf16(dtype, products);
    if (suits_winograd(geometry, kForwardBatch, bf16))
      floats = std::max(floats, winograd_for(dtype).forward_scratch(sizes, threads));
    if (suits_winograd(geometry, n, bf16))
      floats = std::max(floats, winograd_for(dtype).backward_data_scratch(sizes, threads));
    if (weights_suit_winograd(geometry, n, bf16))
      floats = std::max(floats, winograd_weights_for(dtype).scratch(sizes, threads));
    return static_cast<std::size_t>(floats) * sizeof(float);
  };
  return dispatch_device(device, on_cpu, [&] {
    return geometry.groups > 1 && dtype != DType::kF64
               ? cuda::grouped_conv2d_scratch_bytes(geometry, n, dtype)
               : cuda::conv2d_scratch_bytes(geometry, n, dtype);
  });
}

void conv2d_forward(KernelContext& context, const Conv2dForward& o) {
  constexpr const char* kName = "conv2d_forward";
  const Conv2dGeometry& g = o.geometry;
  const std::int64_t n = check_operands(kName, g, {"x", o.x}, {"y", o.y}, {"weight", o.weight},
                                        weight_dtype(context, o.x));
  check_bias(kName, "bias", g, o.bias, wide_dtype(o.x.dtype));
  check_scratch(kName, context, g, n, o.x.dtype);
  dispatch(
      context, o.x.dtype,
      [&] {
        if (g.groups > 1) return forward_reference<double>(context, o);
        f64().forward(o, sizes_of(g, n), *context.threads, scratch_doubles(context));
      },
      [&] {
        if (!has_fast_kernel(g)) return forward_reference<float>(context, o);
        chosen_table(context, g, kForwardBatch, o.x.dtype)
            .forward(o, sizes_of(g, n), *context.threads, scratch_floats(context));
      },
      [&] {
        if (g.groups > 1 && o.x.dtype != DType::kF64)
          return cuda::grouped_conv2d_forward(context, o);
        cuda::conv2d_forward(context, o);
      });
}

void conv2d_backward_data(KernelContext& context, const Conv2dBackwardData& o) {
  constexpr const char* kName = "conv2d_backward_data";
  const Conv2dGeometry& g = o.geometry;
  const std::int64_t n = check_operands(kName, g, {"dx", o.dx}, {"dy", o.dy}, {"weight", o.weight},
                                        weight_dtype(context, o.dx));
  check_scratch(kName, context, g, n, o.dx.dtype);
  dispatch(
      context, o.dx.dtype,
      [&] {
        if (g.groups > 1) return backward_data_reference<double>(context, o);
        f64().backward_data(o, sizes_of(g, n), *context.threads, scratch_doubles(context));
      },
      [&] {
        if (!has_fast_kernel(g)) return backward_data_reference<float>(context, o);
        chosen_table(context, g, n, o.dx.dtype)
            .backward_data(o, sizes_of(g, n), *context.threads, scratch_floats(context));
      },
      [&] {
        if (g.groups > 1 && o.dx.dtype != DType::kF64)
          return cuda::grouped_conv2d_backward_data(context, o);
        cuda::conv2d_backward_data(context, o);
      });
}

void conv2d_backward_weights(KernelContext& context, const Conv2dBackwardWeights& o) {
  constexpr const char* kName = "conv2d_backward_weights";
  const Conv2dGeometry& g = o.geometry;
  const DType gradient = wide_dtype(o.x.dtype);
  const std::int64_t n =
      check_operands(kName, g, {"x", o.x}, {"dy", o.dy}, {"dweight", o.dweight}, gradient);
  check_bias(kName, "dbias", g, o.dbias, gradient);
  check_scratch(kName, context, g, n, o.x.dtype);
  dispatch(
      context, o.x.dtype,
      [&] {
        if (g.groups > 1) return backward_weights_reference<double>(context, o);
        f64().backward_weights(o, sizes_of(g, n), *context.threads, scratch_doubles(context));
        reference::conv2d_backward_bias<double>(o);
      },
      [&] {
        if (!has_fast_kernel(g)) return backward_weights_reference<float>(context, o);
        chosen_weights_table(context, g, n, o.x.dtype)
            .run(o, sizes_of(g, n), *context.threads, scratch_floats(context));
      },
      [&] {
        if (g.groups > 1 && o.x.dtype != DType::kF64)
          return cuda::grouped_conv2d_backward_weights(context, o);
        cuda::conv2d_backward_weights(context, o);
      });
}

}  // namespace engine::ops
