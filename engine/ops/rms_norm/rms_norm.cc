// Checks and dispatches RMS normalization.
#include "engine/ops/rms_norm/rms_norm.h"

#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/common/rows.h"
#include "engine/ops/rms_norm/rms_norm_cpu.h"
#include "engine/ops/rms_norm/rms_norm_cuda.h"
#include "engine/ops/rms_norm/rms_norm_reference.h"

namespace engine::ops {
namespace {

RmsNormSizes check_rows(const char* kernel, const TensorView& x, const TensorView& gamma,
                        const RmsNormParts& parts) {
  check_floating(kernel, "x", x);
  if (x.shape.rank() < 2)
    throw ShapeError(std::string(kernel) + ": x has the shape " + x.shape.to_string() +
                     ", expected [rows..., width]");
  const RowSizes all = row_sizes(x);
  const std::int64_t width = parts.count == 0 ? all.width : gamma.shape.count();
  check_dtype(kernel, "gamma", gamma, wide_dtype(x.dtype));
  check_shape(kernel, "gamma", gamma, {width});
  const RmsNormSizes s{all.rows, all.width, parts.first, parts.count == 0 ? 1 : parts.count, width};
  if (s.first < 0 || s.count < 1 || s.first + s.count * width > s.stride)
    throw ShapeError(std::string(kernel) + ": " + std::to_string(s.count) + " parts of " +
                     std::to_string(width) + " from element " + std::to_string(s.first) +
                     " on, expected at most the " + std::to_string(s.stride) + " of a row");
  return s;
}

void check_inverse(const char* kernel, const TensorView& inverse_rms, const TensorView& x,
                   const RmsNormSizes& s) {
  check_dtype(kernel, "inverse_rms", inverse_rms, wide_dtype(x.dtype));
  check_count(kernel, "inverse_rms", inverse_rms, s.rows * s.count);
}

}  // namespace

std::size_t rms_norm_scratch_bytes(std::int64_t width, Device::Kind device) {
  return dispatch_device(
      device, [] { return std::size_t{0}; }, [&] { return cuda::rms_norm_scratch_bytes(width); });
}

void rms_norm_forward(KernelContext& context, const RmsNormForward& o) {
  constexpr const char* kName = "rms_norm_forward";
  check_context(kName, context);
  const RmsNormSizes s = check_rows(kName, o.x, o.gamma, o.parts);
  check_like(kName, "y", o.y, o.x);
  if (o.inverse_rms) check_inverse(kName, o.inverse_rms, o.x, s);
  dispatch(
      context, o.x.dtype, [&] { reference::rms_norm_forward<double>(o, s); },
      [&] { isa_table_of_rms_norm_table().forward(o, s, *context.threads); },
      [&] { cuda::rms_norm_forward(context, o, s); });
}

void rms_norm_backward(KernelContext& context, const RmsNormBackward& o) {
  constexpr const char* kName = "rms_norm_backward";
  const RmsNormSizes s = check_rows(kName, o.x, o.gamma, o.parts);
  check_context(kName, context, rms_norm_scratch_bytes(s.width, context.device.kind));
  check_inverse(kName, o.inverse_rms, o.x, s);
  check_like(kName, "dy", o.dy, o.x);
  check_like(kName, "dgamma", o.dgamma, o.gamma);
  if (o.dx) check_like(kName, "dx", o.dx, o.x);
  dispatch(
      context, o.x.dtype, [&] { reference::rms_norm_backward<double>(o, s); },
      [&] { isa_table_of_rms_norm_table().backward(o, s, *context.threads); },
      [&] { cuda::rms_norm_backward(context, o, s); });
}

}  // namespace engine::ops
