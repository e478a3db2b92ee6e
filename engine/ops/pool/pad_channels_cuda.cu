// One thread per element of the wide tensor in forward, of the narrow one in backward.
#include "engine/ops/pool/pad_channels_cuda.h"

#include "engine/ops/common/rows.h"
#include "engine/ops/device/device_code.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void pad_forward(const T* x, std::int64_t count, int channels, int before, int padded,
                            T* y) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t row = i / padded;
    const int channel = static_cast<int>(i - row * padded) - before;
    y[i] = channel >= 0 && channel < channels ? x[row * channels + channel] : from_wide<T>(0);
  }
}

template <class T>
__global__ void pad_backward(const T* dy, std::int64_t count, int channels, int before, int padded,
                             bool add, T* dx) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t row = i / channels;
    const T from = dy[row * padded + before + (i - row * channels)];
    dx[i] = add ? from_wide<T>(to_wide(dx[i]) + to_wide(from)) : from;
  }
}

}  // namespace

void pad_channels_forward(KernelContext& context, const PadChannelsForward& o) {
  const std::int64_t count = o.y.count();
  if (count == 0) return;
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    launch("pad_channels_forward", pad_forward<T>, {loop_blocks(count, kThreads)}, kThreads, 0,
           context.stream, o.x.as<T>(), count, static_cast<int>(row_sizes(o.x).width),
           static_cast<int>(o.before), static_cast<int>(row_sizes(o.y).width), o.y.as<T>());
  });
}

void pad_channels_backward(KernelContext& context, const PadChannelsBackward& o) {
  const std::int64_t count = o.dx.count();
  if (count == 0) return;
  with_any_storage(o.dy.dtype, [&]<class T>(T) {
    launch("pad_channels_backward", pad_backward<T>, {loop_blocks(count, kThreads)}, kThreads, 0,
           context.stream, o.dy.as<T>(), count, static_cast<int>(row_sizes(o.dx).width),
           static_cast<int>(o.before), static_cast<int>(row_sizes(o.dy).width),
           o.write == Write::kAdd, o.dx.as<T>());
  });
}

}  // namespace engine::ops::cuda
