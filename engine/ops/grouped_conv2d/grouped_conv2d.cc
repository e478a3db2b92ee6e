// Checks and dispatches grouped convolution.
#include "engine/ops/grouped_conv2d/grouped_conv2d.h"

#include <algorithm>
#include <string>

#include "engine/core/error.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/grouped_conv2d/grouped_conv2d_cpu.h"
#include "engine/ops/grouped_conv2d/grouped_conv2d_reference.h"

namespace engine::ops {
namespace {

// More pieces share the sums of a gradient among more threads, and need more scratch.
constexpr std::int64_t kMaxPieces = 16, kMaxPieceFloats = 1 << 22;

void check_geometry(const char* kernel, const GroupedConv2dGeometry& g) {
  const bool sizes = g.in_h > 0 && g.in_w > 0 && g.in_channels > 0 && g.out_channels > 0 &&
                     g.kernel > 0 && g.stride > 0 && g.padding >= 0 && g.groups > 0;
  if (sizes && g.in_channels % g.groups == 0 && g.out_channels % g.groups == 0 &&
      std::min(g.in_h, g.in_w) + 2 * g.padding >= g.kernel)
    return;
  throw ShapeError(std::string(kernel) + ": no output for an input of [" + std::to_string(g.in_h) +
                   ", " + std::to_string(g.in_w) + ", " + std::to_string(g.in_channels) +
                   "] with a kernel of " + std::to_string(g.kernel) + ", stride " +
                   std::to_string(g.stride) + ", padding " + std::to_string(g.padding) + ", " +
                   std::to_string(g.out_channels) + " output channels and " +
                   std::to_string(g.groups) + " groups");
}

struct Named {
  const char* name;
  const TensorView& view;
};

// Checks the operands that all calls share; returns n.
std::int64_t check_operands(const char* kernel, const GroupedConv2dGeometry& g, const Named& input,
                            const Named& output, const Named& weight) {
  check_geometry(kernel, g);
  const Shape& shape = input.view.shape;
  if (shape.rank() != 4)
    throw ShapeError(std::string(kernel) + ": " + input.name + " has the shape " +
                     shape.to_string() + ", expected [n, h, w, channels]");
  check_stored(kernel, input.name, input.view);
  check_shape(kernel, input.name, input.view, {shape[0], g.in_h, g.in_w, g.in_channels});
  check_dtype(kernel, weight.name, weight.view, wide_dtype(input.view.dtype));
  check_shape(kernel, weight.name, weight.view,
              {g.kernel, g.kernel, g.in_channels / g.groups, g.out_channels});
  check_dtype(kernel, output.name, output.view, input.view.dtype);
  check_shape(kernel, output.name, output.view, {shape[0], g.out_h(), g.out_w(), g.out_channels});
  return shape[0];
}

void check_bias(const char* kernel, const char* name, const GroupedConv2dGeometry& g,
                const TensorView& bias, DType dtype) {
  if (!bias) return;
  check_dtype(kernel, name, bias, dtype);
  check_shape(kernel, name, bias, {g.out_channels});
}

std::int64_t weight_floats(const GroupedConv2dGeometry& g) {
  return g.kernel * g.kernel * (g.in_channels / g.groups) * g.out_channels;
}

GroupedConvSizes sizes_of(const GroupedConv2dGeometry& g, std::int64_t n) {
  const std::int64_t floats = weight_floats(g) + g.out_channels;
  const std::int64_t most = std::clamp(kMaxPieceFloats / floats, std::int64_t{1}, kMaxPieces);
  const std::int64_t pieces = std::clamp(n * g.out_h(), std::int64_t{1}, most);
  return {n,        g.in_h,   g.in_w,    g.in_channels, g.out_h(), g.out_w(), g.out_channels,
          g.kernel, g.stride, g.padding, g.groups,      pieces};
}

const GroupedConv2dTable& table_for(DType dtype) {
  return ENGINE_TABLE_FOR(dtype, grouped_conv2d_table);
}

float* scratch_floats(const KernelContext& context) {
  return reinterpret_cast<float*>(context.scratch.data());
}

[[noreturn]] void refuse_device(const char* kernel) {
  throw ModelError(std::string(kernel) + ": there is no kernel for CUDA devices");
}

}  // namespace

std::size_t grouped_conv2d_scratch_bytes(const GroupedConv2dGeometry& geometry, std::int64_t n,
                                         DType dtype) {
  if (dtype == DType::kF64) return 0;
  const std::int64_t each = weight_floats(geometry) + geometry.out_channels;
  return static_cast<std::size_t>(sizes_of(geometry, n).pieces * each) * sizeof(float);
}

void grouped_conv2d_forward(KernelContext& context, const GroupedConv2dForward& o) {
  constexpr const char* kName = "grouped_conv2d_forward";
  if (on_cuda(context)) refuse_device(kName);
  const GroupedConv2dGeometry& g = o.geometry;
  const std::int64_t n = check_operands(kName, g, {"x", o.x}, {"y", o.y}, {"weight", o.weight});
  check_bias(kName, "bias", g, o.bias, wide_dtype(o.x.dtype));
  check_context(kName, context);
  dispatch_dtype(
      o.x.dtype,
      [&] {
        context.threads->run(n, [&](std::int64_t first, std::int64_t last, int) {
          reference::grouped_conv2d_forward<double>(o, first, last);
        });
      },
      [&] { table_for(o.x.dtype).forward(o, sizes_of(g, n), *context.threads); });
}

void grouped_conv2d_backward_data(KernelContext& context, const GroupedConv2dBackwardData& o) {
  constexpr const char* kName = "grouped_conv2d_backward_data";
  if (on_cuda(context)) refuse_device(kName);
  const GroupedConv2dGeometry& g = o.geometry;
  const std::int64_t n = check_operands(kName, g, {"dx", o.dx}, {"dy", o.dy}, {"weight", o.weight});
  check_context(kName, context, grouped_conv2d_scratch_bytes(g, n, o.dx.dtype));
  dispatch_dtype(
      o.dx.dtype,
      [&] {
        context.threads->run(n, [&](std::int64_t first, std::int64_t last, int) {
          reference::grouped_conv2d_backward_data<double>(o, first, last);
        });
      },
      [&] {
        table_for(o.dx.dtype)
            .backward_data(o, sizes_of(g, n), *context.threads, scratch_floats(context));
      });
}

void grouped_conv2d_backward_weights(KernelContext& context,
                                     const GroupedConv2dBackwardWeights& o) {
  constexpr const char* kName = "grouped_conv2d_backward_weights";
  if (on_cuda(context)) refuse_device(kName);
  const GroupedConv2dGeometry& g = o.geometry;
  const std::int64_t n = check_operands(kName, g, {"x", o.x}, {"dy", o.dy}, {"dweight", o.dweight});
  check_bias(kName, "dbias", g, o.dbias, wide_dtype(o.x.dtype));
  check_context(kName, context, grouped_conv2d_scratch_bytes(g, n, o.x.dtype));
  dispatch_dtype(
      o.x.dtype,
      [&] {
        context.threads->run(g.kernel * g.kernel, [&](std::int64_t first, std::int64_t last, int) {
          reference::grouped_conv2d_backward_weights<double>(o, first, last);
        });
        reference::grouped_conv2d_backward_bias<double>(o);
      },
      [&] {
        table_for(o.x.dtype).backward_weights(o, sizes_of(g, n), *context.threads,
                                              scratch_floats(context));
      });
}

}  // namespace engine::ops
