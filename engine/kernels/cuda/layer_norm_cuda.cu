// A warp a row, which it keeps in registers (up to 1024 elements; beyond, and from 256 where rows are not aligned, a
// block a row, which reads it again from the cache):
// each operand crosses the bus once, 16 bytes at a time where rows allow it. The variance is taken around the mean, not as a
// difference of moments. Gradients of gamma and beta: sums of slices of rows in scratch, then the sum of the slices. Bound:
// bytes.
#include "engine/kernels/cuda/layer_norm_cuda.h"

#include "engine/kernels/cuda/device_code.h"
#include "engine/kernels/cuda/float_access.h"
#include "engine/kernels/cuda/storage_dispatch.h"

namespace engine::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kSlices = 128, kLeastRows = 32;  // of the gradients of gamma and beta

// The elements of a row that a thread of the row's kRowThreads keeps: groups of kVector neighbours, kRowThreads * kVector apart.
template <int kRowThreads, int kVector>
__device__ __forceinline__ int column(int group) {
  return (group * kRowThreads + static_cast<int>(threadIdx.x) % kRowThreads) * kVector;
}

template <class T, int kElements, int kVector>
__global__ void __launch_bounds__(kThreads) forward_by_warps(const T* x, std::int64_t rows, int width, const float* gamma,
                                                             const float* beta, float eps, T* y, float* statistics) {
  const std::int64_t r = std::int64_t{blockIdx.x} * kWarps + warp_index();
  if (r >= rows) return;
  float value[kElements], sum = 0, squares = 0;
#pragma unroll
  for (int k = 0; k < kElements / kVector; ++k) {
    const int c = column<kWarp, kVector>(k);
    if (c < width) load_floats<kVector>(x + r * width + c, value + k * kVector);
#pragma unroll
    for (int i = k * kVector; i < (k + 1) * kVector; ++i) sum += value[i] = c < width ? value[i] : 0;
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
__global__ void __launch_bounds__(kThreads) forward_by_blocks(const T* x, std::int64_t rows, int width, const float* gamma,
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
  const float inverse = rsqrtf(__fdividef(block_sum(squares, partial), static_cast<float>(width)) + eps);
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

template <class T>
struct BackwardRows {
  const T* x;
  std::int64_t rows;
  int width;
  const float *gamma, *statistics;
  const T* dy;
  bool add;
  T* dx;
};

// kVector elements of dx, from the two means over the row.
template <int kVector, class T>
__device__ __forceinline__ void store_dx(const BackwardRows<T>& o, std::int64_t at, const float* g, const float* xhat,
                                         float mean_of_g, float mean_of_products, float inverse) {
  float d[kVector], before[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) d[i] = inverse * (g[i] - mean_of_g - xhat[i] * mean_of_products);
  if (o.add) {
    load_floats<kVector>(o.dx + at, before);
#pragma unroll
    for (int i = 0; i < kVector; ++i) d[i] += before[i];
  }
  store_floats<kVector>(o.dx + at, d);
}

// dy * gamma and xhat at column c of row r.
template <int kVector, class T>
__device__ __forceinline__ void load_row(const BackwardRows<T>& o, std::int64_t r, int c, float mean, float inverse, float* g,
                                         float* xhat) {
  float weight[kVector];
  load_floats<kVector>(o.x + r * o.width + c, xhat);
  load_floats<kVector>(o.dy + r * o.width + c, g);
  load_floats<kVector>(o.gamma + c, weight);
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    xhat[i] = (xhat[i] - mean) * inverse;
    g[i] *= weight[i];
  }
}

template <class T, int kElements, int kVector>
__global__ void __launch_bounds__(kThreads) backward_by_warps(BackwardRows<T> o) {
  const std::int64_t r = std::int64_t{blockIdx.x} * kWarps + warp_index();
  if (r >= o.rows) return;
  const float mean = o.statistics[r], inverse = o.statistics[o.rows + r];
  float g[kElements], xhat[kElements], sum = 0, products = 0;
#pragma unroll
  for (int k = 0; k < kElements / kVector; ++k) {
    const int c = column<kWarp, kVector>(k);
    if (c >= o.width) continue;
    load_row<kVector>(o, r, c, mean, inverse, g + k * kVector, xhat + k * kVector);
#pragma unroll
    for (int i = k * kVector; i < (k + 1) * kVector; ++i) {
      sum += g[i];
      products += g[i] * xhat[i];
    }
  }
  sum = __fdividef(warp_sum(sum), static_cast<float>(o.width));
  products = __fdividef(warp_sum(products), static_cast<float>(o.width));
#pragma unroll
  for (int k = 0; k < kElements / kVector; ++k) {
    const int c = column<kWarp, kVector>(k);
    if (c < o.width) store_dx<kVector>(o, r * o.width + c, g + k * kVector, xhat + k * kVector, sum, products, inverse);
  }
}

template <class T, int kVector>
__global__ void __launch_bounds__(kThreads) backward_by_blocks(BackwardRows<T> o) {
  float* partial = block_shared<float[kWarps]>();
  const std::int64_t r = blockIdx.x;
  const float mean = o.statistics[r], inverse = o.statistics[o.rows + r];
  float g[kVector], xhat[kVector], sum = 0, products = 0;
  for (int c = column<kThreads, kVector>(0); c < o.width; c += kThreads * kVector) {
    load_row<kVector>(o, r, c, mean, inverse, g, xhat);
    for (int i = 0; i < kVector; ++i) {
      sum += g[i];
      products += g[i] * xhat[i];
    }
  }
  sum = __fdividef(block_sum(sum, partial), static_cast<float>(o.width));
  products = __fdividef(block_sum(products, partial), static_cast<float>(o.width));
  for (int c = column<kThreads, kVector>(0); c < o.width; c += kThreads * kVector) {
    load_row<kVector>(o, r, c, mean, inverse, g, xhat);
    store_dx<kVector>(o, r * o.width + c, g, xhat, sum, products, inverse);
  }
}

// A block sums 32 columns over one slice of the rows, its warps taking rows in turn. parts [slices, 2, width].
template <class T>
__global__ void __launch_bounds__(kThreads) sums_of_slices(const T* x, std::int64_t rows, int width, const float* statistics,
                                                           const T* dy, std::int64_t slice_rows, float* parts) {
  struct Shared {
    float products[kWarps][kWarp], sums[kWarps][kWarp];
  };
  Shared& shared = block_shared<Shared>();
  const int c = static_cast<int>(blockIdx.x) * kWarp + lane_index(), w = warp_index();
  const std::int64_t first = blockIdx.y * slice_rows, last = first + slice_rows < rows ? first + slice_rows : rows;
  float sum = 0, products = 0;
  if (c < width) {
#pragma unroll 4
    for (std::int64_t r = first + w; r < last; r += kWarps) {
      const float slope = to_float(dy[r * width + c]);
      sum += slope;
      products += slope * (to_float(x[r * width + c]) - statistics[r]) * statistics[rows + r];
    }
  }
  shared.products[w][lane_index()] = products;
  shared.sums[w][lane_index()] = sum;
  __syncthreads();
  if (w > 0 || c >= width) return;
  for (int other = 1; other < kWarps; ++other) {
    products += shared.products[other][lane_index()];
    sum += shared.sums[other][lane_index()];
  }
  parts[std::int64_t{2} * blockIdx.y * width + c] = products;
  parts[std::int64_t{2} * blockIdx.y * width + width + c] = sum;
}

// Element i of [dgamma, dbeta] is the sum of element i of all slices.
__global__ void __launch_bounds__(kThreads)
    sum_of_slices(const float* parts, int slices, int width, bool add, float* dgamma, float* dbeta) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= 2 * width) return;
  float sum = 0;
#pragma unroll 8
  for (int s = 0; s < slices; ++s) sum += parts[std::int64_t{2} * s * width + i];
  float& to = i < width ? dgamma[i] : dbeta[i - width];
  to = add ? to + sum : sum;
}

// Calls start(kernel index, vector): with std::integral_constants for the elements a lane keeps (0: rows too long) and kVector.
template <class T, class Start>
void with_row_kind(int width, bool aligned, Start start) {
  const auto by_width = [&]<int kVector>(std::integral_constant<int, kVector> vector) {
    if (width <= 8 * kWarp) return start(std::integral_constant<int, 8>{}, vector);
    if constexpr (kVector > 1) {
      if (width <= 16 * kWarp) return start(std::integral_constant<int, 16>{}, vector);
      if (width <= 32 * kWarp) return start(std::integral_constant<int, 32>{}, vector);
    }
    start(std::integral_constant<int, 0>{}, vector);
  };
  aligned ? by_width(std::integral_constant<int, Packed<T>::kCount>{}) : by_width(std::integral_constant<int, 1>{});
}

Grid row_grid(int elements, std::int64_t rows) { return {static_cast<unsigned>(elements == 0 ? rows : divide_up(rows, kWarps))}; }

}  // namespace

std::size_t layer_norm_scratch_bytes(std::int64_t width) { return kSlices * 2 * static_cast<std::size_t>(width) * sizeof(float); }

void layer_norm_forward(KernelContext& context, TensorView x, TensorView gamma, TensorView beta, double eps, TensorView y,
                        TensorView statistics) {
  if (x.count() == 0) return;
  const int width = static_cast<int>(gamma.count());
  const std::int64_t rows = x.count() / width;
  with_storage(x.dtype, [&]<class T>(T) {
    const bool aligned = rows_are_aligned<T>(width, x.as<T>(), y.as<T>(), gamma.as<float>(), beta.as<float>());
    with_row_kind<T>(
        width, aligned,
        [&]<int kElements, int kVector>(std::integral_constant<int, kElements>, std::integral_constant<int, kVector>) {
          const auto start = [&](auto kernel) {
            launch("layer_norm_forward", kernel, row_grid(kElements, rows), kThreads, kWarps * sizeof(float), context.stream,
                   x.as<T>(), rows, width, gamma.as<float>(), beta.as<float>(), static_cast<float>(eps), y.as<T>(),
                   statistics.as<float>());
          };
          if constexpr (kElements == 0)
            start(forward_by_blocks<T, kVector>);
          else
            start(forward_by_warps<T, kElements, kVector>);
        });
  });
}

void layer_norm_backward_data(KernelContext& context, TensorView x, TensorView gamma, TensorView statistics, TensorView dy,
                              TensorView dx, Write write) {
  if (x.count() == 0) return;
  const int width = static_cast<int>(gamma.count());
  const std::int64_t rows = x.count() / width;
  with_storage(x.dtype, [&]<class T>(T) {
    const BackwardRows<T> operands{
        x.as<T>(), rows, width, gamma.as<float>(), statistics.as<float>(), dy.as<T>(), write == Write::kAdd, dx.as<T>()};
    const bool aligned = rows_are_aligned<T>(width, operands.x, operands.dy, operands.dx, operands.gamma);
    with_row_kind<T>(
        width, aligned,
        [&]<int kElements, int kVector>(std::integral_constant<int, kElements>, std::integral_constant<int, kVector>) {
          const auto start = [&](auto kernel) {
            launch("layer_norm_backward_data", kernel, row_grid(kElements, rows), kThreads, kWarps * sizeof(float),
                   context.stream, operands);
          };
          if constexpr (kElements == 0)
            start(backward_by_blocks<T, kVector>);
          else
            start(backward_by_warps<T, kElements, kVector>);
        });
  });
}

void layer_norm_backward_parameters(KernelContext& context, TensorView x, TensorView statistics, TensorView dy, TensorView dgamma,
                                    TensorView dbeta, Write write) {
  const int width = static_cast<int>(dgamma.count());
  if (width == 0) return;
  const std::int64_t rows = x.count() / width, wanted = divide_up(rows, kSlices);
  const std::int64_t slice_rows = wanted < kLeastRows ? kLeastRows : wanted, slices = divide_up(rows, slice_rows);
  auto* parts = reinterpret_cast<float*>(context.scratch.data());
  if (rows > 0)
    with_storage(x.dtype, [&]<class T>(T) {
      launch("layer_norm_sums", sums_of_slices<T>,
             {static_cast<unsigned>(divide_up(width, kWarp)), static_cast<unsigned>(slices)}, kThreads,
             2 * kThreads * sizeof(float), context.stream, x.as<T>(), rows, width, statistics.as<float>(), dy.as<T>(), slice_rows,
             parts);
    });
  launch("layer_norm_sum", sum_of_slices, {static_cast<unsigned>(divide_up(2 * width, kThreads))}, kThreads, 0, context.stream,
         parts, static_cast<int>(slices), width, write == Write::kAdd, dgamma.as<float>(), dbeta.as<float>());
}

}  // namespace engine::kernels::cuda
