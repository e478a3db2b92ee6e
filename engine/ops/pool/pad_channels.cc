// Checks and dispatch of channel padding.
#include "engine/ops/pool/pad_channels.h"

#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/pool/pad_channels_cuda.h"
#include "engine/ops/pool/pad_channels_reference.h"

namespace engine::ops {
namespace {

struct Extents {
  std::int64_t rows, channels, padded;
};

Extents check_operands(std::string_view kernel, const KernelContext& context, std::int64_t before,
                       std::string_view narrow_name, const TensorView& narrow,
                       std::string_view wide_name, const TensorView& wide) {
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
  return {narrow.count() / from[last], from[last], to[last]};
}

}  // namespace

void pad_channels_forward(KernelContext& context, std::int64_t before, TensorView x, TensorView y) {
  const Extents e = check_operands("pad_channels_forward", context, before, "x", x, "y", y);
  const auto call = [&]<class T>(T) {
    context.threads->run(e.rows, [&](std::int64_t first, std::int64_t last, int) {
      reference::pad_channels_forward(static_cast<const T*>(x.data) + first * e.channels,
                                      last - first, e.channels, before, e.padded,
                                      static_cast<T*>(y.data) + first * e.padded);
    });
  };
  dispatch(
      context, x.dtype, [&] { call(double{}); }, [&] { call(float{}); },
      [&] { cuda::pad_channels_forward(context, e.rows, e.channels, before, e.padded, x, y); });
}

void pad_channels_backward(KernelContext& context, std::int64_t before, TensorView dy,
                           TensorView dx, Write write) {
  const Extents e = check_operands("pad_channels_backward", context, before, "dx", dx, "dy", dy);
  const auto call = [&]<class T>(T) {
    context.threads->run(e.rows, [&](std::int64_t first, std::int64_t last, int) {
      reference::pad_channels_backward(static_cast<const T*>(dy.data) + first * e.padded,
                                       last - first, e.channels, before, e.padded,
                                       static_cast<T*>(dx.data) + first * e.channels, write);
    });
  };
  dispatch(
      context, dx.dtype, [&] { call(double{}); }, [&] { call(float{}); },
      [&] {
        cuda::pad_channels_backward(context, e.rows, e.channels, before, e.padded, dy, dx, write);
      });
}

}  // namespace engine::ops
