// Checks and dispatches layer normalization.
#include "engine/ops/norm/layer_norm.h"

#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/common/rows.h"
#include "engine/ops/norm/layer_norm_cpu.h"
#include "engine/ops/norm/layer_norm_cuda.h"
#include "engine/ops/norm/layer_norm_reference.h"

namespace engine::ops {
namespace {

RowSizes check_rows(const char* kernel, const KernelContext& context, const TensorView& x) {
  check_floating(kernel, "x", x);
  if (x.shape.rank() < 2)
    throw ShapeError(std::string(kernel) + ": x has the shape " + x.shape.to_string() +
                     ", expected [rows..., width]");
  const RowSizes sizes = row_sizes(x);
  check_context(kernel, context, layer_norm_scratch_bytes(sizes.width, context.device.kind));
  return sizes;
}

void check_parameter(const char* kernel, const char* operand, const TensorView& view,
                     const TensorView& x) {
  check_dtype(kernel, operand, view, wide_dtype(x.dtype));
  check_shape(kernel, operand, view, {row_sizes(x).width});
}

void check_statistics(const char* kernel, const TensorView& statistics, const TensorView& x) {
  check_dtype(kernel, "statistics", statistics, wide_dtype(x.dtype));
  check_shape(kernel, "statistics", statistics, {2, row_sizes(x).rows});
}

}  // namespace

std::size_t layer_norm_scratch_bytes(std::int64_t width, Device::Kind device) {
  return dispatch_device(
      device, [] { return std::size_t{0}; }, [&] { return cuda::layer_norm_scratch_bytes(width); });
}

void layer_norm_forward(KernelContext& context, const LayerNormForward& o) {
  constexpr const char* kName = "layer_norm_forward";
  check_rows(kName, context, o.x);
  check_parameter(kName, "gamma", o.gamma, o.x);
  check_parameter(kName, "beta", o.beta, o.x);
  check_like(kName, "y", o.y, o.x);
  if (o.statistics) check_statistics(kName, o.statistics, o.x);
  dispatch(
      context, o.x.dtype, [&] { reference::layer_norm_forward<double>(o); },
      [&] { isa_table_of_layer_norm_table().forward(o, *context.threads); },
      [&] { cuda::layer_norm_forward(context, o); });
}

void layer_norm_backward_data(KernelContext& context, const LayerNormBackwardData& o) {
  constexpr const char* kName = "layer_norm_backward_data";
  check_rows(kName, context, o.x);
  check_parameter(kName, "gamma", o.gamma, o.x);
  check_statistics(kName, o.statistics, o.x);
  check_like(kName, "dy", o.dy, o.x);
  check_like(kName, "dx", o.dx, o.x);
  dispatch(
      context, o.x.dtype, [&] { reference::layer_norm_backward_data<double>(o); },
      [&] { isa_table_of_layer_norm_table().backward_data(o, *context.threads); },
      [&] { cuda::layer_norm_backward_data(context, o); });
}

void layer_norm_backward_parameters(KernelContext& context, const LayerNormBackwardParameters& o) {
  constexpr const char* kName = "layer_norm_backward_parameters";
  check_rows(kName, context, o.x);
  check_statistics(kName, o.statistics, o.x);
  check_like(kName, "dy", o.dy, o.x);
  check_parameter(kName, "dgamma", o.dgamma, o.x);
  check_parameter(kName, "dbeta", o.dbeta, o.x);
  dispatch(
      context, o.x.dtype, [&] { reference::layer_norm_backward_parameters<double>(o); },
      [&] { isa_table_of_layer_norm_table().backward_parameters(o, *context.threads); },
      [&] { cuda::layer_norm_backward_parameters(context, o); });
}

void layer_norm_backward(KernelContext& context, const LayerNormBackward& o) {
  constexpr const char* kName = "layer_norm_backward";
  check_rows(kName, context, o.x);
  check_parameter(kName, "gamma", o.gamma, o.x);
  check_parameter(kName, "dgamma", o.dgamma, o.x);
  check_parameter(kName, "dbeta", o.dbeta, o.x);
  check_statistics(kName, o.statistics, o.x);
  check_like(kName, "dy", o.dy, o.x);
  check_like(kName, "dx", o.dx, o.x);
  dispatch_device(
      context.device.kind,
      [&] {
        layer_norm_backward_parameters(context, o.parameters());
        layer_norm_backward_data(context, o.data());
      },
      [&] { cuda::layer_norm_backward(context, o); });
}

}  // namespace engine::ops
