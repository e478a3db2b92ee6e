// A warp a row, which it keeps in registers (up to 1024 elements; beyond, and from 256 where rows
// are not aligned, a block a row, which reads it again from the cache): each operand crosses the
// bus once, 16 bytes at a time where rows allow it. The variance is taken around the mean, not as a
// difference of moments. Bound: bytes.
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/norm/layer_norm_cuda.h"
#include "engine/ops/norm/layer_norm_rows.h"

namespace engine::ops::cuda {
namespace {

using namespace layer_norm_rows;

template <class T, int kElements, int kVector>
__global__ void __launch_bounds__(kThreads)
    forward_by_warps(const T* x, std::int64_t rows, int width, const float* gamma,
                     const float* beta, float eps, T* y, float* statistics) {
  const std::int64_t r = std::int64_t{blockIdx.x} * kWarps + warp_index();
  if (r >= rows) return;
  float value[kElements], sum = 0, squares = 0;
#pragma unroll
  for (int k = 0; k < kElements / kVector; ++k) {
    const int c = column<kWarp, kVector>(k);
    if (c < width) load_floats<kVector>(x + r * width + c, value + k * kVector);
#pragma unroll
    for (int i = k * kVector; i < (k + 1) * kVector; ++i)
      sum += value[i] = c < width ? value[i] : 0;
  }
  const float mean = __fdividef(warp_sum(sum), static_cast<float>(width));
#pragma unroll
  for (int k = 0; k < kElements / kVector; ++k)
#pragma unroll
    for (int i = k * kVector; i < (k + 1) * kVector; ++i) {
      value[i] -= mean;
      if (column<kWarp, kVector>(k) < width) squares += value[i] * value[i];
    }
  const float inverse = rsqrtf(__fdividef(warp_sum(squares), static_cast<float>(width)) + eps);
#pragma unroll
  for (int k = 0; k < kElements / kVector; ++k) {
    const int c = column<kWarp, kVector>(k);
    if (c >= width) continue;
    float g[kVector], b[kVector];
    load_floats<kVector>(gamma + c, g);
    load_floats<kVector>(beta + c, b);
#pragma unroll
    for (int i = 0; i < kVector; ++i) g[i] = value[k * kVector + i] * inverse * g[i] + b[i];
    store_floats<kVector>(y + r * width + c, g);
  }
  if (statistics == nullptr || lane_index() != 0) return;
  statistics[r] = mean;
  statistics[rows + r] = inverse;
}

template <class T, int kVector>
__global__ void __launch_bounds__(kThreads)
    forward_by_blocks(const T* x, std::int64_t rows, int width, const float* gamma,
                      const float* beta, float eps, T* y, float* statistics) {
  float* partial = block_shared<float[kWarps]>();
  const std::int64_t r = blockIdx.x;
  float v[kVector], sum = 0, squares = 0;
  for (int c = column<kThreads, kVector>(0); c < width; c += kThreads * kVector) {
    load_floats<kVector>(x + r * width + c, v);
    for (int i = 0; i < kVector; ++i) sum += v[i];
  }
  const float mean = __fdividef(block_sum(sum, partial), static_cast<float>(width));
  for (int c = column<kThreads, kVector>(0); c < width; c += kThreads * kVector) {
    load_floats<kVector>(x + r * width + c, v);
    for (int i = 0; i < kVector; ++i) squares += (v[i] - mean) * (v[i] - mean);
  }
  const float inverse =
      rsqrtf(__fdividef(block_sum(squares, partial), static_cast<float>(width)) + eps);
  for (int c = column<kThreads, kVector>(0); c < width; c += kThreads * kVector) {
    float g[kVector], b[kVector];
    load_floats<kVector>(x + r * width + c, v);
    load_floats<kVector>(gamma + c, g);
    load_floats<kVector>(beta + c, b);
    for (int i = 0; i < kVector; ++i) v[i] = (v[i] - mean) * inverse * g[i] + b[i];
    store_floats<kVector>(y + r * width + c, v);
  }
  if (statistics == nullptr || threadIdx.x != 0) return;
  statistics[r] = mean;
  statistics[rows + r] = inverse;
}

}  // namespace

void layer_norm_forward(KernelContext& context, TensorView x, TensorView gamma, TensorView beta,
                        double eps, TensorView y, TensorView statistics) {
  if (x.count() == 0) return;
  const int width = static_cast<int>(gamma.count());
  const std::int64_t rows = x.count() / width;
  with_storage(x.dtype, [&]<class T>(T) {
    const bool aligned =
        rows_are_aligned<T>(width, x.as<T>(), y.as<T>(), gamma.as<float>(), beta.as<float>());
    with_row_kind<T>(width, aligned,
                     [&]<int kElements, int kVector>(std::integral_constant<int, kElements>,
                                                     std::integral_constant<int, kVector>) {
                       const auto start = [&](auto kernel) {
                         launch("layer_norm_forward", kernel, row_grid(kElements, rows), kThreads,
                                kWarps * sizeof(float), context.stream, x.as<T>(), rows, width,
                                gamma.as<float>(), beta.as<float>(), static_cast<float>(eps),
                                y.as<T>(), statistics.as<float>());
                       };
                       if constexpr (kElements == 0)
                         start(forward_by_blocks<T, kVector>);
                       else
                         start(forward_by_warps<T, kElements, kVector>);
                     });
  });
}

}  // namespace engine::ops::cuda
