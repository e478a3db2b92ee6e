// One thread per element of y.
#include "engine/ops/pool/shuffle_channels_cuda.h"

#include "engine/ops/common/rows.h"
#include "engine/ops/device/device_code.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void shuffle(const T* x, std::int64_t count, int channels, int groups, bool add, T* y) {
  const int size = channels / groups;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t row = i / channels;
    const int channel = static_cast<int>(i - row * channels);
    const T from = x[row * channels + channel % groups * size + channel / groups];
    y[i] = add ? from_wide<T>(to_wide(y[i]) + to_wide(from)) : from;
  }
}

}  // namespace

void shuffle_channels(KernelContext& context, const ShuffleChannels& o) {
  const std::int64_t count = o.y.count();
  if (count == 0) return;
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    launch("shuffle_channels", shuffle<T>, {loop_blocks(count, kThreads)}, kThreads, 0,
           context.stream, o.x.as<T>(), count, static_cast<int>(row_sizes(o.x).width),
           static_cast<int>(o.groups), o.write == Write::kAdd, o.y.as<T>());
  });
}

}  // namespace engine::ops::cuda
