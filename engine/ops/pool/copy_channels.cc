// Checks and dispatches copies of channels; on the CPU, copies rows whole.
#include "engine/ops/pool/copy_channels.h"

#include <algorithm>
#include <functional>
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
  const std::int64_t count = narrow - o.from;
  for (std::int64_t row = first; row < last; ++row) {
    const T* x = o.x.as<T>() + row * narrow + o.from;
    T* y = o.y.as<T>() + row * wide + o.before;
    if (o.write == Write::kOverwrite)
      std::copy_n(x, count, y);
    else
      std::transform(x, x + count, y, y, std::plus<>());
  }
}

}  // namespace

void copy_channels(KernelContext& context, const CopyChannels& o) {
  check_floating("copy_channels", "x", o.x);
  check_dtype("copy_channels", "y", o.y, o.x.dtype);
  check_context("copy_channels", context);
  const Shape &from = o.x.shape, &to = o.y.shape;
  const int last = from.rank() - 1;
  bool fits = last >= 1 && to.rank() == from.rank() && o.from >= 0 && from[last] > o.from &&
              o.before >= 0 && to[last] >= o.before + from[last] - o.from;
  for (int i = 0; fits && i < last; ++i) fits = from[i] == to[i];
  if (!fits)
    throw ShapeError("copy_channels: x has the shape " + from.to_string() + ", y " +
                     to.to_string() +
                     ": expected equal extents but for the last, with room for channels " +
                     std::to_string(o.from) + " and on after " + std::to_string(o.before));
  const std::int64_t rows = row_sizes(o.x).rows;
  const auto call = [&]<class T>(T) {
    context.threads->run(
        rows, [&](std::int64_t begin, std::int64_t end, int) { copy_rows<T>(o, begin, end); });
  };
  dispatch(
      context, o.x.dtype, [&] { call(double{}); }, [&] { call(float{}); },
      [&] { cuda::copy_channels(context, o.x, o.from, o.before, o.y, o.write); });
}

}  // namespace engine::ops
