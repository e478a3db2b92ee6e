// Checks and dispatches channel padding.
#include "engine/ops/pool/pad_channels.h"

#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/common/rows.h"
#include "engine/ops/pool/pad_channels_cuda.h"
#include "engine/ops/pool/pad_channels_reference.h"

namespace engine::ops {
namespace {

// Returns the number of rows.
std::int64_t check_operands(std::string_view kernel, const KernelContext& context,
                            std::int64_t before, std::string_view narrow_name,
                            const TensorView& narrow, std::string_view wide_name,
                            const TensorView& wide) {
  check_floating(kernel, narrow_name, narrow);
  check_dtype(kernel, wide_name, wide, narrow.dtype);
  check_context(kernel, context);
  const Shape &from = narrow.shape, &to = wide.shape;
  const int last = from.rank() - 1;
  bool fits = last >= 1 && to.rank() == from.rank() && from[last] >= 1 && before >= 0 &&
              to[last] >= before + from[last];
  for (int i = 0; fits && i < last; ++i) fits = from[i] == to[i];
  if (!fits) {
    throw ShapeError(std::string(kernel) + ": " + std::string(narrow_name) + " has the shape " +
                     from.to_string() + ", " + std::string(wide_name) + " " + to.to_string() +
                     ": expected equal extents but for the last, which has at least " +
                     std::to_string(before) + " more");
  }
  return row_sizes(narrow).rows;
}

}  // namespace

void pad_channels_forward(KernelContext& context, const PadChannelsForward& o) {
  const std::int64_t rows =
      check_operands("pad_channels_forward", context, o.before, "x", o.x, "y", o.y);
  const auto call = [&]<class T>(T) {
    context.threads->run(rows, [&](std::int64_t first, std::int64_t last, int) {
      reference::pad_channels_forward<T>(o, first, last);
    });
  };
  dispatch(
      context, o.x.dtype, [&] { call(double{}); }, [&] { call(float{}); },
      [&] { cuda::pad_channels_forward(context, o); });
}

void pad_channels_backward(KernelContext& context, const PadChannelsBackward& o) {
  const std::int64_t rows =
      check_operands("pad_channels_backward", context, o.before, "dx", o.dx, "dy", o.dy);
  const auto call = [&]<class T>(T) {
    context.threads->run(rows, [&](std::int64_t first, std::int64_t last, int) {
      reference::pad_channels_backward<T>(o, first, last);
    });
  };
  dispatch(
      context, o.dx.dtype, [&] { call(double{}); }, [&] { call(float{}); },
      [&] { cuda::pad_channels_backward(context, o); });
}

}  // namespace engine::ops
