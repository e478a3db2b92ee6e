// Checks and dispatches group normalization.
#include "engine/ops/norm/group_norm.h"

#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/norm/group_norm_cpu.h"
#include "engine/ops/norm/group_norm_cuda.h"
#include "engine/ops/norm/group_norm_reference.h"

namespace engine::ops {
namespace {

void check_sizes(const char* kernel, const KernelContext& context, const TensorView& x,
                 std::int64_t groups) {
  check_floating(kernel, "x", x);
  const int rank = x.shape.rank();
  if (rank < 2 || groups < 1 || x.shape[rank - 1] < 1 || x.shape[rank - 1] % groups != 0)
    throw ShapeError(std::string(kernel) + ": x has the shape " + x.shape.to_string() +
                     ", expected [n, places..., channels] with channels that " +
                     std::to_string(groups) + " groups divide");
  check_context(kernel, context, group_norm_scratch_bytes(x.shape, x.dtype, context.device.kind));
}

void check_parameter(const char* kernel, const char* operand, const TensorView& view,
                     const TensorView& x) {
  check_dtype(kernel, operand, view, wide_dtype(x.dtype));
  check_shape(kernel, operand, view, {x.shape[x.shape.rank() - 1]});
}

void check_statistics(const char* kernel, const TensorView& statistics, const TensorView& x,
                      std::int64_t groups) {
  check_dtype(kernel, "statistics", statistics, wide_dtype(x.dtype));
  check_shape(kernel, "statistics", statistics, {2, x.shape[0], groups});
}

}  // namespace

std::size_t group_norm_scratch_bytes(const Shape& x, DType dtype, Device::Kind device) {
  const std::int64_t n = x[0], channels = x[x.rank() - 1];
  return dispatch_device(
      device,
      [&]() -> std::size_t {
        if (dtype != DType::kF32) return 0;
        const auto floats = isa_table_of_group_norm_table().scratch_floats(n, channels);
        return static_cast<std::size_t>(floats) * sizeof(float);
      },
      [&] { return cuda::group_norm_scratch_bytes(channels); });
}

void group_norm_forward(KernelContext& context, const GroupNormForward& o) {
  constexpr const char* kName = "group_norm_forward";
  check_sizes(kName, context, o.x, o.groups);
  check_parameter(kName, "gamma", o.gamma, o.x);
  check_parameter(kName, "beta", o.beta, o.x);
  check_like(kName, "y", o.y, o.x);
  if (o.statistics) check_statistics(kName, o.statistics, o.x, o.groups);
  if (o.x.count() == 0) return;
  dispatch(
      context, o.x.dtype, [&] { reference::group_norm_forward<double>(o); },
      [&] {
        isa_table_of_group_norm_table().forward(o, group_norm_sizes(o.x, o.groups),
                                                *context.threads, context.scratch.data());
      },
      [&] { cuda::group_norm_forward(context, o); });
}

void group_norm_backward(KernelContext& context, const GroupNormBackward& o) {
  constexpr const char* kName = "group_norm_backward";
  const std::int64_t groups = o.statistics.shape.rank() == 3 ? o.statistics.shape[2] : 0;
  check_sizes(kName, context, o.x, groups);
  check_parameter(kName, "gamma", o.gamma, o.x);
  check_statistics(kName, o.statistics, o.x, groups);
  check_like(kName, "dy", o.dy, o.x);
  check_parameter(kName, "dgamma", o.dgamma, o.x);
  check_parameter(kName, "dbeta", o.dbeta, o.x);
  if (o.dx) check_like(kName, "dx", o.dx, o.x);
  dispatch(
      context, o.x.dtype, [&] { reference::group_norm_backward<double>(o); },
      [&] {
        isa_table_of_group_norm_table().backward(o, group_norm_sizes(o.x, groups), *context.threads,
                                                 context.scratch.data());
      },
      [&] { cuda::group_norm_backward(context, o); });
}

}  // namespace engine::ops
