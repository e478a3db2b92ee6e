// One thread per pack of channels of the narrow tensor.
#include "engine/ops/pool/copy_channels_cuda.h"

#include <numeric>

#include "engine/ops/common/rows.h"
#include "engine/ops/device/row_blocks.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

// All numbers are of packs.
template <class T, int W>
__global__ void __launch_bounds__(kThreads)
    copy_rows(const T* x, std::int64_t count, std::int64_t narrow, std::int64_t before,
              std::int64_t wide, T* y) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t row = quotient(i, narrow);
    store_pack<W>(y + (row * wide + before + i - row * narrow) * W, load_pack<W>(x + i * W));
  }
}

}  // namespace

void copy_channels(KernelContext& context, TensorView x, std::int64_t before, TensorView y) {
  if (x.count() == 0) return;
  const std::int64_t narrow = row_sizes(x).width, wide = row_sizes(y).width;
  // With a common divisor of all three as width, every row of both tensors consists of whole packs.
  const std::int64_t common = std::gcd(std::gcd(narrow, wide), before);
  with_storage(x.dtype, [&]<class T>(T) {
    with_width<T>(common, {x.data, y.data}, [&]<int W>(std::integral_constant<int, W>) {
      const std::int64_t count = x.count() / W;
      launch("copy_channels", copy_rows<T, W>, {loop_blocks(count, kThreads)}, kThreads, 0,
             context.stream, x.as<T>(), count, narrow / W, before / W, wide / W, y.as<T>());
    });
  });
}

}  // namespace engine::ops::cuda
