// Checks and dispatches the gathering of samples.
#include "engine/ops/samples/gather_samples.h"

#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/samples/gather_samples_cuda.h"

namespace engine::ops {
namespace {

void check_call(std::string_view kernel, const KernelContext& context, const std::int64_t* ids,
                const TensorView& out) {
  if (!on_cuda(context)) throw Error(std::string(kernel) + ": needs a CUDA device");
  check_context(kernel, context);
  if (ids == nullptr && out.count() > 0)
    throw ShapeError(std::string(kernel) + ": ids are missing");
}

}  // namespace

void gather_rows(KernelContext& context, const GatherRows& o) {
  constexpr std::string_view kName = "gather_rows";
  check_call(kName, context, o.ids, o.out);
  if (o.rows.dtype != DType::kU8) check_dtype(kName, "rows", o.rows, DType::kF32);
  check_dtype(kName, "out", o.out, o.rows.dtype);
  Shape expected = o.rows.shape;
  if (expected.rank() > 0 && o.out.shape.rank() > 0) expected[0] = o.out.shape[0];
  check_shape(kName, "out", o.out, expected);
  dispatch_device(
      context.device.kind, [] {}, [&] { cuda::gather_rows(context, o); });
}

void gather_windows(KernelContext& context, const GatherWindows& o) {
  constexpr std::string_view kName = "gather_windows";
  check_call(kName, context, o.ids, o.tokens);
  check_dtype(kName, "stream", o.stream, DType::kI32);
  check_dtype(kName, "tokens", o.tokens, DType::kI32);
  check_like(kName, "next", o.next, o.tokens);
  dispatch_device(
      context.device.kind, [] {}, [&] { cuda::gather_windows(context, o); });
}

}  // namespace engine::ops
