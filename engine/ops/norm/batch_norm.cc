// Checks and dispatches batch normalization.
#include "engine/ops/norm/batch_norm.h"

#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/common/rows.h"
#include "engine/ops/norm/batch_norm_cpu.h"
#include "engine/ops/norm/batch_norm_cuda.h"
#include "engine/ops/norm/batch_norm_reference.h"

namespace engine::ops {
namespace {

RowSizes check_x(std::string_view kernel, const TensorView& x) {
  check_stored(kernel, "x", x);
  const int rank = x.shape.rank();
  if (rank < 2 || x.shape[rank - 1] < 1) {
    throw ShapeError(std::string(kernel) + ": x has the shape " + x.shape.to_string() +
                     ", expected [rows..., channels >= 1]");
  }
  return row_sizes(x);
}

void check_channels(std::string_view kernel, std::string_view operand, const TensorView& view,
                    DType dtype, std::int64_t channels) {
  check_dtype(kernel, operand, view, dtype);
  check_shape(kernel, operand, view, {channels});
}

void check_sums(std::string_view kernel, const TensorView& sums, std::int64_t channels) {
  check_dtype(kernel, "sums", sums, DType::kF64);
  check_shape(kernel, "sums", sums, {2, channels});
}

void check_scratch(std::string_view kernel, const KernelContext& context, std::int64_t rows,
                   std::int64_t channels, DType dtype) {
  check_context(kernel, context);
  const int threads = on_cuda(context) ? 0 : context.threads->threads();
  check_context(kernel, context,
                batch_norm_scratch_bytes(rows, channels, dtype, threads, context.device.kind));
}

const BatchNormTable& fast_for(const TensorView& x) {
  return ENGINE_TABLE_FOR(x.dtype, batch_norm_table);
}

float* scratch_floats(const KernelContext& context) {
  return reinterpret_cast<float*>(context.scratch.data());
}

}  // namespace

std::size_t batch_norm_scratch_bytes(std::int64_t rows, std::int64_t channels, DType dtype,
                                     int threads, Device::Kind device) {
  return dispatch_device(
      device,
      [&]() -> std::size_t {
        if (dtype == DType::kF64) return 0;
        const auto floats =
            ENGINE_TABLE_FOR(dtype, batch_norm_table).scratch_floats(channels, threads);
        return static_cast<std::size_t>(floats) * sizeof(float);
      },
      [&] { return cuda::batch_norm_scratch_bytes(rows, channels, dtype); });
}

void batch_norm_statistics(KernelContext& context, TensorView x, TensorView sums) {
  constexpr std::string_view kName = "batch_norm_statistics";
  const auto [rows, channels] = check_x(kName, x);
  check_sums(kName, sums, channels);
  check_scratch(kName, context, rows, channels, x.dtype);
  dispatch(
      context, x.dtype, [&] { reference::batch_norm_statistics<double>(x, sums); },
      [&] { fast_for(x).statistics(x, sums, *context.threads, scratch_floats(context)); },
      [&] { cuda::batch_norm_statistics(context, x, sums); });
}

void batch_norm_finish_statistics(KernelContext& context, const BatchNormFinishStatistics& o) {
  constexpr std::string_view kName = "batch_norm_finish_statistics";
  const std::int64_t channels = o.mean.count();
  check_sums(kName, o.sums, channels);
  check_floating(kName, "mean", o.mean);
  check_like(kName, "inverse_std", o.inverse_std, o.mean);
  if (o.running_mean) check_channels(kName, "running_mean", o.running_mean, o.mean.dtype, channels);
  if (o.running_var) check_channels(kName, "running_var", o.running_var, o.mean.dtype, channels);
  require(o.rows >= 0, "batch_norm_finish_statistics: rows >= 0");
  check_context(kName, context);
  dispatch(
      context, o.mean.dtype, [&] { reference::batch_norm_finish_statistics<double>(o); },
      [&] { reference::batch_norm_finish_statistics<float>(o); },
      [&] { cuda::batch_norm_finish_statistics(context, o); });
}

void batch_norm_from_running(KernelContext& context, const BatchNormFromRunning& o) {
  constexpr std::string_view kName = "batch_norm_from_running";
  check_floating(kName, "running_mean", o.running_mean);
  check_like(kName, "running_var", o.running_var, o.running_mean);
  check_like(kName, "mean", o.mean, o.running_mean);
  check_like(kName, "inverse_std", o.inverse_std, o.running_mean);
  check_context(kName, context);
  dispatch(
      context, o.mean.dtype, [&] { reference::batch_norm_from_running<double>(o); },
      [&] { reference::batch_norm_from_running<float>(o); },
      [&] { cuda::batch_norm_from_running(context, o); });
}

void batch_norm_normalize(KernelContext& context, const BatchNormNormalize& o) {
  constexpr std::string_view kName = "batch_norm_normalize";
  const auto [rows, channels] = check_x(kName, o.x);
  const DType dtype = wide_dtype(o.x.dtype);
  check_channels(kName, "mean", o.mean, dtype, channels);
  check_channels(kName, "inverse_std", o.inverse_std, dtype, channels);
  check_channels(kName, "gamma", o.gamma, dtype, channels);
  check_channels(kName, "beta", o.beta, dtype, channels);
  if (o.residual) check_like(kName, "residual", o.residual, o.x);
  check_like(kName, "y", o.y, o.x);
  check_scratch(kName, context, rows, channels, o.x.dtype);
  dispatch(
      context, o.x.dtype, [&] { reference::batch_norm_normalize<double>(o); },
      [&] { fast_for(o.x).normalize(o, *context.threads, scratch_floats(context)); },
      [&] { cuda::batch_norm_normalize(context, o); });
}

void batch_norm_backward_sums(KernelContext& context, const BatchNormBackwardSums& o) {
  constexpr std::string_view kName = "batch_norm_backward_sums";
  const auto [rows, channels] = check_x(kName, o.x);
  const DType dtype = wide_dtype(o.x.dtype);
  if (o.y) check_like(kName, "y", o.y, o.x);
  check_like(kName, "dy", o.dy, o.x);
  check_channels(kName, "mean", o.mean, dtype, channels);
  check_channels(kName, "inverse_std", o.inverse_std, dtype, channels);
  check_sums(kName, o.sums, channels);
  if (o.dresidual) check_like(kName, "dresidual", o.dresidual, o.x);
  check_scratch(kName, context, rows, channels, o.x.dtype);
  dispatch(
      context, o.x.dtype, [&] { reference::batch_norm_backward_sums<double>(o); },
      [&] { fast_for(o.x).backward_sums(o, *context.threads, scratch_floats(context)); },
      [&] { cuda::batch_norm_backward_sums(context, o); });
}

void batch_norm_backward_parameters(KernelContext& context, const BatchNormBackwardParameters& o) {
  constexpr std::string_view kName = "batch_norm_backward_parameters";
  check_floating(kName, "dgamma", o.dgamma);
  check_like(kName, "dbeta", o.dbeta, o.dgamma);
  check_sums(kName, o.sums, o.dgamma.count());
  check_context(kName, context);
  dispatch(
      context, o.dgamma.dtype, [&] { reference::batch_norm_backward_parameters<double>(o); },
      [&] { reference::batch_norm_backward_parameters<float>(o); },
      [&] { cuda::batch_norm_backward_parameters(context, o); });
}

void batch_norm_backward_data(KernelContext& context, const BatchNormBackwardData& o) {
  constexpr std::string_view kName = "batch_norm_backward_data";
  const auto [rows, channels] = check_x(kName, o.x);
  const DType dtype = wide_dtype(o.x.dtype);
  if (o.y) check_like(kName, "y", o.y, o.x);
  check_like(kName, "dy", o.dy, o.x);
  check_channels(kName, "mean", o.mean, dtype, channels);
  check_channels(kName, "inverse_std", o.inverse_std, dtype, channels);
  check_channels(kName, "gamma", o.gamma, dtype, channels);
  check_sums(kName, o.sums, channels);
  check_like(kName, "dx", o.dx, o.x);
  check_scratch(kName, context, rows, channels, o.x.dtype);
  require(o.rows >= rows, "batch_norm_backward_data: the group has at least the rows of x");
  if (rows == 0) return;
  dispatch(
      context, o.x.dtype, [&] { reference::batch_norm_backward_data<double>(o); },
      [&] { fast_for(o.x).backward_data(o, *context.threads, scratch_floats(context)); },
      [&] { cuda::batch_norm_backward_data(context, o); });
}

}  // namespace engine::ops
