// Checks and dispatches channel shuffles.
#include "engine/ops/pool/shuffle_channels.h"

#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/common/rows.h"
#include "engine/ops/pool/shuffle_channels_cuda.h"

namespace engine::ops {
namespace {

// Computes rows [first, last).
template <class T>
void shuffle_rows(const ShuffleChannels& o, std::int64_t first, std::int64_t last) {
  const std::int64_t channels = row_sizes(o.x).width, size = channels / o.groups;
  const T* x = o.x.as<T>() + first * channels;
  T* y = o.y.as<T>() + first * channels;
  for (std::int64_t row = first; row < last; ++row, x += channels) {
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t group = 0; group < o.groups; ++group, ++y)
        *y = o.write == Write::kAdd ? *y + x[group * size + i] : x[group * size + i];
    }
  }
}

}  // namespace

void shuffle_channels(KernelContext& context, const ShuffleChannels& o) {
  constexpr std::string_view kKernel = "shuffle_channels";
  check_floating(kKernel, "x", o.x);
  check_dtype(kKernel, "y", o.y, o.x.dtype);
  check_context(kKernel, context);
  if (o.x.shape.rank() < 2 || o.y.shape != o.x.shape || o.groups < 1 ||
      row_sizes(o.x).width % o.groups != 0)
    throw ShapeError("shuffle_channels: x has the shape " + o.x.shape.to_string() + ", y " +
                     o.y.shape.to_string() + ": expected equal ones whose last extent is a " +
                     "multiple of " + std::to_string(o.groups));
  const auto call = [&]<class T>(T) {
    context.threads->run(row_sizes(o.x).rows, [&](std::int64_t first, std::int64_t last, int) {
      shuffle_rows<T>(o, first, last);
    });
  };
  dispatch(
      context, o.x.dtype, [&] { call(double{}); }, [&] { call(float{}); },
      [&] { cuda::shuffle_channels(context, o); });
}

}  // namespace engine::ops
