// One warp per row, which it keeps in registers (up to 1024 elements; beyond that, and from 256 if
// rows are not aligned, one block per row, which reads it again from the cache). Each operand is
// read from memory once, 16 bytes at a time if rows are aligned. The variance is computed around
// the mean, not as a difference of moments. Bound by bytes.
#include "engine/ops/common/rows.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/norm/layer_norm_cuda.h"
#include "engine/ops/norm/layer_norm_rows.h"

namespace engine::ops::cuda {
namespace {

using namespace layer_norm_rows;

template <class T>
struct ForwardRows {
  const T* x;
  std::int64_t rows;
  int width;
  const Wide<T>*gamma, *beta;
  Wide<T> eps;
  T* y;
  Wide<T>* statistics;
};

template <class T, int kElements, int kVector>
__global__ void __launch_bounds__(kThreads) forward_by_warps(ForwardRows<T> o) {
  using N = Wide<T>;
  const std::int64_t r = std::int64_t{blockIdx.x} * kWarps + warp_index();
  if (r >= o.rows) return;
  N value[kElements], sum = 0, squares = 0;
#pragma unroll
  for (int k = 0; k < kElements / kVector; ++k) {
    const int c = column<kWarp, kVector>(k);
    if (c < o.width) load_floats<kVector>(o.x + r * o.width + c, value + k * kVector);
#pragma unroll
    for (int i = k * kVector; i < (k + 1) * kVector; ++i)
      sum += value[i] = c < o.width ? value[i] : 0;
  }
  const N mean = divide_fast(warp_sum(sum), static_cast<N>(o.width));
#pragma unroll
  for (int k = 0; k < kElements / kVector; ++k)
#pragma unroll
    for (int i = k * kVector; i < (k + 1) * kVector; ++i) {
      value[i] -= mean;
      if (column<kWarp, kVector>(k) < o.width) squares += value[i] * value[i];
    }
  const N inverse = inverse_root(divide_fast(warp_sum(squares), static_cast<N>(o.width)) + o.eps);
#pragma unroll
  for (int k = 0; k < kElements / kVector; ++k) {
    const int c = column<kWarp, kVector>(k);
    if (c >= o.width) continue;
    N g[kVector], b[kVector];
    load_floats<kVector>(o.gamma + c, g);
    load_floats<kVector>(o.beta + c, b);
#pragma unroll
    for (int i = 0; i < kVector; ++i) g[i] = value[k * kVector + i] * inverse * g[i] + b[i];
    store_floats<kVector>(o.y + r * o.width + c, g);
  }
  if (o.statistics == nullptr || lane_index() != 0) return;
  o.statistics[r] = mean;
  o.statistics[o.rows + r] = inverse;
}

template <class T, int kVector>
__global__ void __launch_bounds__(kThreads) forward_by_blocks(ForwardRows<T> o) {
  using N = Wide<T>;
  N* partial = block_shared<N[kWarps]>();
  const std::int64_t r = blockIdx.x;
  N v[kVector], sum = 0, squares = 0;
  for (int c = column<kThreads, kVector>(0); c < o.width; c += kThreads * kVector) {
    load_floats<kVector>(o.x + r * o.width + c, v);
    for (int i = 0; i < kVector; ++i) sum += v[i];
  }
  const N mean = divide_fast(block_sum(sum, partial), static_cast<N>(o.width));
  for (int c = column<kThreads, kVector>(0); c < o.width; c += kThreads * kVector) {
    load_floats<kVector>(o.x + r * o.width + c, v);
    for (int i = 0; i < kVector; ++i) squares += (v[i] - mean) * (v[i] - mean);
  }
  const N inverse =
      inverse_root(divide_fast(block_sum(squares, partial), static_cast<N>(o.width)) + o.eps);
  for (int c = column<kThreads, kVector>(0); c < o.width; c += kThreads * kVector) {
    N g[kVector], b[kVector];
    load_floats<kVector>(o.x + r * o.width + c, v);
    load_floats<kVector>(o.gamma + c, g);
    load_floats<kVector>(o.beta + c, b);
    for (int i = 0; i < kVector; ++i) v[i] = (v[i] - mean) * inverse * g[i] + b[i];
    store_floats<kVector>(o.y + r * o.width + c, v);
  }
  if (o.statistics == nullptr || threadIdx.x != 0) return;
  o.statistics[r] = mean;
  o.statistics[o.rows + r] = inverse;
}

}  // namespace

void layer_norm_forward(KernelContext& context, const LayerNormForward& o) {
  const auto [rows, width] = row_sizes(o.x);
  if (rows == 0) return;
  with_any_storage(o.x.dtype, [&, rows = rows, width = width]<class T>(T) {
    const ForwardRows<T> operands{o.x.as<T>(),
                                  rows,
                                  static_cast<int>(width),
                                  o.gamma.as<Wide<T>>(),
                                  o.beta.as<Wide<T>>(),
                                  static_cast<Wide<T>>(o.eps),
                                  o.y.as<T>(),
                                  o.statistics.as<Wide<T>>()};
    const bool aligned =
        rows_are_aligned<T>(width, operands.x, operands.y, operands.gamma, operands.beta);
    with_row_kind<T>(operands.width, aligned,
                     [&]<int kElements, int kVector>(std::integral_constant<int, kElements>,
                                                     std::integral_constant<int, kVector>) {
                       const auto start = [&](auto kernel) {
                         launch("layer_norm_forward", kernel, row_grid(kElements, operands.rows),
                                kThreads, kWarps * sizeof(Wide<T>), context.stream, operands);
                       };
                       if constexpr (kElements == 0)
                         start(forward_by_blocks<T, kVector>);
                       else
                         start(forward_by_warps<T, kElements, kVector>);
                     });
  });
}

}  // namespace engine::ops::cuda
