// One thread per pack of channels of the narrow tensor.
#include "engine/ops/pool/copy_channels_cuda.h"

#include <numeric>

#include "engine/ops/common/rows.h"
#include "engine/ops/device/row_blocks.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

// Numbers of packs: in a row of x and of y, before those that are copied, and in all.
struct Places {
  std::int64_t narrow, wide, from, before, count;
};

template <class T, int W>
__global__ void __launch_bounds__(kThreads) copy_rows(const T* x, Places o, bool add, T* y) {
  const std::int64_t each = o.narrow - o.from;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < o.count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t row = quotient(i, each), place = i - row * each;
    const Pack<T, W> pack = load_pack<W>(x + (row * o.narrow + o.from + place) * W);
    T* to = y + (row * o.wide + o.before + place) * W;
    if (!add) {
      store_pack<W>(to, pack);
      continue;
    }
    Wide<T> values[W];
    ENGINE_UNROLL
    for (int j = 0; j < W; ++j) values[j] = to_wide(pack.at[j]);
    put<T, W>(values, true, to);
  }
}

}  // namespace

void copy_channels(KernelContext& context, TensorView x, std::int64_t from, std::int64_t before,
                   TensorView y, Write write) {
  if (x.count() == 0) return;
  const auto [rows, narrow] = row_sizes(x);
  const std::int64_t wide = row_sizes(y).width;
  // With a common divisor of all four as width, every row of both tensors consists of whole packs.
  const std::int64_t common = std::gcd(std::gcd(narrow, wide), std::gcd(before, from)),
                     count = rows * (narrow - from);
  const Places all{narrow, wide, from, before, count};
  with_any_storage(x.dtype, [&]<class T>(T) {
    with_width<T>(common, {x.data, y.data}, [&]<int W>(std::integral_constant<int, W>) {
      const Places packs{all.narrow / W, all.wide / W, all.from / W, all.before / W, all.count / W};
      launch("copy_channels", copy_rows<T, W>, {loop_blocks(packs.count, kThreads)}, kThreads, 0,
             context.stream, x.as<T>(), packs, write == Write::kAdd, y.as<T>());
    });
  });
}

}  // namespace engine::ops::cuda
