// Softmax of rows: one warp per row, which it keeps in registers, or one block per row, which reads
// it again from the cache. Bound by bytes.
#include <limits>

#include "engine/ops/attention/softmax_cuda.h"
#include "engine/ops/common/rows.h"
#include "engine/ops/device/block_max.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/norm/layer_norm_rows.h"

namespace engine::ops::cuda {
namespace {

using namespace layer_norm_rows;

// Forward: `a` is x, and `to` is y. Backward: `a` is y, `b` is dy, and `to` is dx.
template <class T>
struct Rows {
  const T *a, *b;
  T* to;
  std::int64_t count;
  int width;
  bool add;
};

template <int kVector, class T>
__device__ __forceinline__ void put_row(const Rows<T>& o, std::int64_t at, const Wide<T>* values) {
  Wide<T> results[kVector];
  if (o.add) load_floats<kVector>(o.to + at, results);
#pragma unroll
  for (int i = 0; i < kVector; ++i) results[i] = o.add ? results[i] + values[i] : values[i];
  store_floats<kVector>(o.to + at, results);
}

template <class T, int kElements, int kVector>
__global__ void __launch_bounds__(kThreads) forward_by_warps(Rows<T> o) {
  using N = Wide<T>;
  const std::int64_t r = std::int64_t{blockIdx.x} * kWarps + warp_index();
  if (r >= o.count) return;
  const std::int64_t at = r * o.width;
  N value[kElements], top = -std::numeric_limits<N>::infinity(), sum = 0;
#pragma unroll
  for (int k = 0; k < kElements; k += kVector) {
    const int c = column<kWarp, kVector>(k / kVector);
    if (c >= o.width) continue;
    load_floats<kVector>(o.a + at + c, value + k);
#pragma unroll
    for (int i = k; i < k + kVector; ++i) top = larger(value[i], top);
  }
  top = warp_max_or_nan(top);
#pragma unroll
  for (int k = 0; k < kElements; k += kVector) {
    if (column<kWarp, kVector>(k / kVector) >= o.width) continue;
#pragma unroll
    for (int i = k; i < k + kVector; ++i) sum += value[i] = exp(value[i] - top);
  }
  const N factor = 1 / warp_sum(sum);
#pragma unroll
  for (int k = 0; k < kElements; k += kVector) {
    const int c = column<kWarp, kVector>(k / kVector);
    if (c >= o.width) continue;
#pragma unroll
    for (int i = k; i < k + kVector; ++i) value[i] *= factor;
    store_floats<kVector>(o.to + at + c, value + k);
  }
}

template <class T, int kVector>
__global__ void __launch_bounds__(kThreads) forward_by_blocks(Rows<T> o) {
  using N = Wide<T>;
  using Shared = N[kWarps];
  Shared& partial = block_shared<Shared>();
  const std::int64_t at = std::int64_t{blockIdx.x} * o.width;
  N value[kVector], top = -std::numeric_limits<N>::infinity(), sum = 0;
  for (int c = column<kThreads, kVector>(0); c < o.width; c += kThreads * kVector) {
    load_floats<kVector>(o.a + at + c, value);
    for (int i = 0; i < kVector; ++i) top = larger(value[i], top);
  }
  top = block_max(top, partial);
  for (int c = column<kThreads, kVector>(0); c < o.width; c += kThreads * kVector) {
    load_floats<kVector>(o.a + at + c, value);
    for (int i = 0; i < kVector; ++i) sum += exp(value[i] - top);
  }
  const N factor = 1 / block_sum(sum, partial);
  for (int c = column<kThreads, kVector>(0); c < o.width; c += kThreads * kVector) {
    load_floats<kVector>(o.a + at + c, value);
    for (int i = 0; i < kVector; ++i) value[i] = exp(value[i] - top) * factor;
    store_floats<kVector>(o.to + at + c, value);
  }
}

template <class T, int kElements, int kVector>
__global__ void __launch_bounds__(kThreads) backward_by_warps(Rows<T> o) {
  using N = Wide<T>;
  const std::int64_t r = std::int64_t{blockIdx.x} * kWarps + warp_index();
  if (r >= o.count) return;
  const std::int64_t at = r * o.width;
  N y[kElements], dy[kElements], sum = 0;
#pragma unroll
  for (int k = 0; k < kElements; k += kVector) {
    const int c = column<kWarp, kVector>(k / kVector);
    if (c >= o.width) continue;
    load_floats<kVector>(o.a + at + c, y + k);
    load_floats<kVector>(o.b + at + c, dy + k);
#pragma unroll
    for (int i = k; i < k + kVector; ++i) sum += y[i] * dy[i];
  }
  sum = warp_sum(sum);
#pragma unroll
  for (int k = 0; k < kElements; k += kVector) {
    const int c = column<kWarp, kVector>(k / kVector);
    if (c >= o.width) continue;
#pragma unroll
    for (int i = k; i < k + kVector; ++i) dy[i] = y[i] * (dy[i] - sum);
    put_row<kVector>(o, at + c, dy + k);
  }
}

template <class T, int kVector>
__global__ void __launch_bounds__(kThreads) backward_by_blocks(Rows<T> o) {
  using N = Wide<T>;
  using Shared = N[kWarps];
  Shared& partial = block_shared<Shared>();
  const std::int64_t at = std::int64_t{blockIdx.x} * o.width;
  N y[kVector], dy[kVector], sum = 0;
  for (int c = column<kThreads, kVector>(0); c < o.width; c += kThreads * kVector) {
    load_floats<kVector>(o.a + at + c, y);
    load_floats<kVector>(o.b + at + c, dy);
    for (int i = 0; i < kVector; ++i) sum += y[i] * dy[i];
  }
  sum = block_sum(sum, partial);
  for (int c = column<kThreads, kVector>(0); c < o.width; c += kThreads * kVector) {
    load_floats<kVector>(o.a + at + c, y);
    load_floats<kVector>(o.b + at + c, dy);
    for (int i = 0; i < kVector; ++i) dy[i] = y[i] * (dy[i] - sum);
    put_row<kVector>(o, at + c, dy);
  }
}

template <bool kForward, class T>
void launch_rows(KernelContext& context, const char* name, const Rows<T>& o, bool aligned) {
  if (o.count == 0) return;
  with_row_kind<T>(
      o.width, aligned,
      [&]<int kElements, int kVector>(std::integral_constant<int, kElements>,
                                      std::integral_constant<int, kVector>) {
        const auto start = [&](auto kernel) {
          launch(name, kernel, row_grid(kElements, o.count), kThreads, kWarps * sizeof(Wide<T>),
                 context.stream, o);
        };
        if constexpr (kElements == 0)
          start(kForward ? forward_by_blocks<T, kVector> : backward_by_blocks<T, kVector>);
        else
          start(kForward ? forward_by_warps<T, kElements, kVector>
                         : backward_by_warps<T, kElements, kVector>);
      });
}

}  // namespace

void softmax_forward(KernelContext& context, TensorView x, TensorView y) {
  const RowSizes s = row_sizes(x);
  with_any_storage(x.dtype, [&]<class T>(T) {
    const Rows<T> rows{x.as<T>(), nullptr, y.as<T>(), s.rows, static_cast<int>(s.width), false};
    launch_rows<true>(context, "softmax_forward", rows,
                      rows_are_aligned<T>(s.width, rows.a, rows.to));
  });
}

void softmax_backward(KernelContext& context, TensorView y, TensorView dy, TensorView dx,
                      Write write) {
  const RowSizes s = row_sizes(y);
  with_any_storage(y.dtype, [&]<class T>(T) {
    const Rows<T> rows{
        y.as<T>(), dy.as<T>(), dx.as<T>(), s.rows, static_cast<int>(s.width), write == Write::kAdd};
    launch_rows<false>(context, "softmax_backward", rows,
                       rows_are_aligned<T>(s.width, rows.a, rows.b, rows.to));
  });
}

}  // namespace engine::ops::cuda
