// Checks and dispatches, and plain loops over rows.
#include "engine/ops/loss/row_weights.h"

#include <string_view>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/loss/row_weights_cuda.h"

namespace engine::ops {
namespace {

template <class T>
void weigh(TensorView weights, TensorView rows) {
  const double* from = weights.as<double>();
  T* to = rows.as<T>();
  for (std::int64_t i = 0; i < rows.count(); ++i) to[i] *= static_cast<T>(from[i]);
}

}  // namespace

void weigh_rows(KernelContext& context, TensorView weights, TensorView rows) {
  constexpr std::string_view kName = "weigh_rows";
  check_dtype(kName, "weights", weights, DType::kF64);
  rows.shape = {rows.count()};
  check_shape(kName, "rows", rows, weights.shape);
  if (context.device.kind == Device::Kind::kCuda)
    check_dtype(kName, "rows", rows, wide_dtype(rows.dtype));
  check_context(kName, context);
  dispatch(
      context, rows.dtype, [&] { weigh<double>(weights, rows); },
      [&] { weigh<float>(weights, rows); }, [&] { cuda::weigh_rows(context, weights, rows); });
}

}  // namespace engine::ops
