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
    copy_rows(const T* x, std::int64_t count, std::int64_t narrow, std::int64_t from,
              std::int64_t before, std::int64_t wide, bool add, T* y) {
  const std::int64_t each = narrow - from;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t row = quotient(i, each), place = i - row * each;
    const Pack<T, W> pack = load_pack<W>(x + (row * narrow + from + place) * W);
    T* to = y + (row * wide + before + place) * W;
    if (!add) {
      store_pack<W>(to, pack);
      continue;
    }
    float values[W];
    ENGINE_UNROLL
    for (int j = 0; j < W; ++j) values[j] = to_float(pack.at[j]);
    put<T, W>(values, true, to);
  }
}

}  // namespace

void copy_channels(KernelContext& context, const CopyChannels& o) {
  if (o.x.count() == 0) return;
  const std::int64_t narrow = row_sizes(o.x).width, wide = row_sizes(o.y).width;
  // With a common divisor of all four as width, every row of both tensors consists of whole packs.
  const std::int64_t common = std::gcd(std::gcd(narrow, wide), std::gcd(o.before, o.from));
  with_storage(o.x.dtype, [&]<class T>(T) {
    with_width<T>(common, {o.x.data, o.y.data}, [&]<int W>(std::integral_constant<int, W>) {
      const std::int64_t count = row_sizes(o.x).rows * (narrow - o.from) / W;
      launch("copy_channels", copy_rows<T, W>, {loop_blocks(count, kThreads)}, kThreads, 0,
             context.stream, o.x.as<T>(), count, narrow / W, o.from / W, o.before / W, wide / W,
             o.write == Write::kAdd, o.y.as<T>());
    });
  });
}

}  // namespace engine::ops::cuda
