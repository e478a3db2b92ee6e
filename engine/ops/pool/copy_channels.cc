// Checks and dispatches copies of channels; on the CPU, copies rows whole.
#include "engine/ops/pool/copy_channels.h"

#include <algorithm>
#include <string>

#include "engine/core/error.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/common/rows.h"
#include "engine/ops/pool/copy_channels_cuda.h"

namespace engine::ops {
namespace {

// Copies rows [first, last).
template <class T>
void copy_rows(const CopyChannels& o, std::int64_t first, std::int64_t last) {
  const std::int64_t narrow = row_sizes(o.x).width, wide = row_sizes(o.y).width;
  for (std::int64_t row = first; row < last; ++row)
    std::copy_n(o.x.as<T>() + row * narrow, narrow, o.y.as<T>() + row * wide + o.before);
}

}  // namespace

void copy_channels(KernelContext& context, const CopyChannels& o) {
  check_floating("copy_channels", "x", o.x);
  check_dtype("copy_channels", "y", o.y, o.x.dtype);
  check_context("copy_channels", context);
  const Shape &from = o.x.shape, &to = o.y.shape;
  const int last = from.rank() - 1;
  bool fits = last >= 1 && to.rank() == from.rank() && from[last] >= 1 && o.before >= 0 &&
              to[last] >= o.before + from[last];
  for (int i = 0; fits && i < last; ++i) fits = from[i] == to[i];
  if (!fits)
    throw ShapeError("copy_channels: x has the shape " + from.to_string() + ", y " +
                     to.to_string() +
                     ": expected equal extents but for the last, which has at "
                     "least " +
                     std::to_string(o.before) + " more");
  const std::int64_t rows = row_sizes(o.x).rows;
  const auto call = [&]<class T>(T) {
    context.threads->run(
        rows, [&](std::int64_t begin, std::int64_t end, int) { copy_rows<T>(o, begin, end); });
  };
  dispatch(
      context, o.x.dtype, [&] { call(double{}); }, [&] { call(float{}); },
      [&] { cuda::copy_channels(context, o.x, o.before, o.y); });
}

}  // namespace engine::ops
