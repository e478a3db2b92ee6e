// As in forward, one warp (or block) per row. Gradients of gamma and beta: sums over slices of rows
// in scratch, then the sum of the slices, each in one order. If rows fit into a warp's registers,
// one kernel computes dx and those sums: x and dy are read once instead of twice. Bound by bytes.
#include "engine/ops/common/rows.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/norm/layer_norm_cuda.h"
#include "engine/ops/norm/layer_norm_rows.h"

namespace engine::ops::cuda {
namespace {

using namespace layer_norm_rows;

constexpr int kSlices = 256, kMinRows = 32;  // for the gradients of gamma and beta

template <class T>
struct BackwardRows {
  const T* x;
  std::int64_t rows;
  int width;
  const Wide<T>*gamma, *statistics;
  const T* dy;
  bool add;
  T* dx;
};

// Stores kVector elements of dx, computed from the two means over the row.
template <int kVector, class T>
__device__ __forceinline__ void store_dx(const BackwardRows<T>& o, std::int64_t at,
                                         const Wide<T>* g, const Wide<T>* xhat, Wide<T> mean_of_g,
                                         Wide<T> mean_of_products, Wide<T> inverse) {
  Wide<T> d[kVector], before[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    d[i] = inverse * (g[i] - mean_of_g - xhat[i] * mean_of_products);
  if (o.add) {
    load_floats<kVector>(o.dx + at, before);
#pragma unroll
    for (int i = 0; i < kVector; ++i) d[i] += before[i];
  }
  store_floats<kVector>(o.dx + at, d);
}

// Loads dy * gamma and xhat at column c of row r.
template <int kVector, class T>
__device__ __forceinline__ void load_row(const BackwardRows<T>& o, std::int64_t r, int c,
                                         Wide<T> mean, Wide<T> inverse, Wide<T>* g, Wide<T>* xhat) {
  Wide<T> weight[kVector];
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
  using N = Wide<T>;
  const std::int64_t r = std::int64_t{blockIdx.x} * kWarps + warp_index();
  if (r >= o.rows) return;
  const N mean = o.statistics[r], inverse = o.statistics[o.rows + r];
  N g[kElements], xhat[kElements], sum = 0, products = 0;
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
  sum = divide_fast(warp_sum(sum), static_cast<N>(o.width));
  products = divide_fast(warp_sum(products), static_cast<N>(o.width));
#pragma unroll
  for (int k = 0; k < kElements / kVector; ++k) {
    const int c = column<kWarp, kVector>(k);
    if (c < o.width)
      store_dx<kVector>(o, r * o.width + c, g + k * kVector, xhat + k * kVector, sum, products,
                        inverse);
  }
}

template <class T, int kVector>
__global__ void __launch_bounds__(kThreads) backward_by_blocks(BackwardRows<T> o) {
  using N = Wide<T>;
  N* partial = block_shared<N[kWarps]>();
  const std::int64_t r = blockIdx.x;
  const N mean = o.statistics[r], inverse = o.statistics[o.rows + r];
  N g[kVector], xhat[kVector], sum = 0, products = 0;
  for (int c = column<kThreads, kVector>(0); c < o.width; c += kThreads * kVector) {
    load_row<kVector>(o, r, c, mean, inverse, g, xhat);
    for (int i = 0; i < kVector; ++i) {
      sum += g[i];
      products += g[i] * xhat[i];
    }
  }
  sum = divide_fast(block_sum(sum, partial), static_cast<N>(o.width));
  products = divide_fast(block_sum(products, partial), static_cast<N>(o.width));
  for (int c = column<kThreads, kVector>(0); c < o.width; c += kThreads * kVector) {
    load_row<kVector>(o, r, c, mean, inverse, g, xhat);
    store_dx<kVector>(o, r * o.width + c, g, xhat, sum, products, inverse);
  }
}

// Each block sums 32 columns over one slice of the rows; its warps process the rows round-robin.
// parts [slices, 2, width].
template <class T>
__global__ void __launch_bounds__(kThreads)
    sums_of_slices(const T* x, std::int64_t rows, int width, const Wide<T>* statistics, const T* dy,
                   std::int64_t slice_rows, Wide<T>* parts) {
  struct Shared {
    Wide<T> products[kWarps][kWarp], sums[kWarps][kWarp];
  };
  Shared& shared = block_shared<Shared>();
  const int c = static_cast<int>(blockIdx.x) * kWarp + lane_index(), w = warp_index();
  const std::int64_t first = blockIdx.y * slice_rows,
                     last = first + slice_rows < rows ? first + slice_rows : rows;
  Wide<T> sum = 0, products = 0;
  if (c < width) {
#pragma unroll 4
    for (std::int64_t r = first + w; r < last; r += kWarps) {
      const Wide<T> slope = to_wide(dy[r * width + c]);
      sum += slope;
      products += slope * (to_wide(x[r * width + c]) - statistics[r]) * statistics[rows + r];
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
template <class N>
__global__ void __launch_bounds__(kThreads)
    sum_of_slices(const N* parts, int slices, int width, bool add, N* dgamma, N* dbeta) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= 2 * width) return;
  N sum = 0;
#pragma unroll 8
  for (int s = 0; s < slices; ++s) sum += parts[std::int64_t{2} * s * width + i];
  N& to = i < width ? dgamma[i] : dbeta[i - width];
  to = add ? to + sum : sum;
}

template <class T>
BackwardRows<T> backward_rows(const LayerNormBackwardData& o) {
  const auto [rows, width] = row_sizes(o.x);
  return {o.x.as<T>(),
          rows,
          static_cast<int>(width),
          o.gamma.as<Wide<T>>(),
          o.statistics.as<Wide<T>>(),
          o.dy.as<T>(),
          o.write == Write::kAdd,
          o.dx.as<T>()};
}

// Computes everything in one pass: dx, and the sums over the rows that each of the block's warps
// processes, which stay in registers.
template <class T, int kElements, int kVector>
__global__ void __launch_bounds__(kThreads) backward_at_once(BackwardRows<T> o, float* parts) {
  float* sums = &block_shared<float>();  // [2, width]
  float dgamma[kElements] = {}, dbeta[kElements] = {};
  for (std::int64_t r = std::int64_t{blockIdx.x} * kWarps + warp_index(); r < o.rows;
       r += std::int64_t{gridDim.x} * kWarps) {
    const float mean = o.statistics[r], inverse = o.statistics[o.rows + r];
    float g[kElements], xhat[kElements], sum = 0, products = 0;
#pragma unroll
    for (int k = 0; k < kElements; k += kVector) {
      const int c = column<kWarp, kVector>(k / kVector);
      if (c >= o.width) continue;
      load_floats<kVector>(o.x + r * o.width + c, xhat + k);
      load_floats<kVector>(o.dy + r * o.width + c, g + k);
    }
#pragma unroll
    for (int k = 0; k < kElements; k += kVector) {
      const int c = column<kWarp, kVector>(k / kVector);
      if (c >= o.width) continue;
      float weight[kVector];
      load_floats<kVector>(o.gamma + c, weight);
#pragma unroll
      for (int i = k; i < k + kVector; ++i) {
        xhat[i] = (xhat[i] - mean) * inverse;
        dgamma[i] += g[i] * xhat[i];
        dbeta[i] += g[i];
        g[i] *= weight[i - k];
        sum += g[i];
        products += g[i] * xhat[i];
      }
    }
    sum = __fdividef(warp_sum(sum), static_cast<float>(o.width));
    products = __fdividef(warp_sum(products), static_cast<float>(o.width));
#pragma unroll
    for (int k = 0; k < kElements; k += kVector) {
      const int c = column<kWarp, kVector>(k / kVector);
      if (c < o.width)
        store_dx<kVector>(o, r * o.width + c, g + k, xhat + k, sum, products, inverse);
    }
  }
  for (int w = 0; w < kWarps; ++w) {  // one warp after the other, for a fixed order
    if (warp_index() == w) {
#pragma unroll
      for (int k = 0; k < kElements; k += kVector) {
        const int c = column<kWarp, kVector>(k / kVector);
        if (c >= o.width) continue;
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          sums[c + i] = (w == 0 ? 0 : sums[c + i]) + dgamma[k + i];
          sums[o.width + c + i] = (w == 0 ? 0 : sums[o.width + c + i]) + dbeta[k + i];
        }
      }
    }
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x); i < 2 * o.width; i += kThreads)
    parts[std::int64_t{2} * blockIdx.x * o.width + i] = sums[i];
}

// The last step of the gradients of gamma and beta: adds the slices in scratch.
template <class N>
void add_slices(KernelContext& context, std::int64_t slices, const LayerNormBackwardParameters& o) {
  const int width = static_cast<int>(o.dgamma.count());
  launch("layer_norm_sum", sum_of_slices<N>,
         {static_cast<unsigned>(divide_up(2 * width, kThreads))}, kThreads, 0, context.stream,
         reinterpret_cast<const N*>(context.scratch.data()), static_cast<int>(slices), width,
         o.write == Write::kAdd, o.dgamma.as<N>(), o.dbeta.as<N>());
}

}  // namespace

std::size_t layer_norm_scratch_bytes(std::int64_t width) {
  return kSlices * 2 * static_cast<std::size_t>(width) * sizeof(float);
}

void layer_norm_backward_data(KernelContext& context, const LayerNormBackwardData& o) {
  if (o.x.count() == 0) return;
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    const BackwardRows<T> operands = backward_rows<T>(o);
    const bool aligned =
        rows_are_aligned<T>(operands.width, operands.x, operands.dy, operands.dx, operands.gamma);
    with_row_kind<T>(operands.width, aligned,
                     [&]<int kElements, int kVector>(std::integral_constant<int, kElements>,
                                                     std::integral_constant<int, kVector>) {
                       const auto start = [&](auto kernel) {
                         launch("layer_norm_backward_data", kernel,
                                row_grid(kElements, operands.rows), kThreads,
                                kWarps * sizeof(Wide<T>), context.stream, operands);
                       };
                       if constexpr (kElements == 0)
                         start(backward_by_blocks<T, kVector>);
                       else
                         start(backward_by_warps<T, kElements, kVector>);
                     });
  });
}

void layer_norm_backward_parameters(KernelContext& context, const LayerNormBackwardParameters& o) {
  const int width = static_cast<int>(o.dgamma.count());
  if (width == 0) return;
  const std::int64_t rows = o.x.count() / width;
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    using N = Wide<T>;
    const std::int64_t wanted = divide_up(rows, slices_of<N>(kSlices)),
                       slice_rows = wanted < kMinRows ? kMinRows : wanted,
                       slices = divide_up(rows, slice_rows);
    if (rows > 0)
      launch("layer_norm_sums", sums_of_slices<T>,
             {static_cast<unsigned>(divide_up(width, kWarp)), static_cast<unsigned>(slices)},
             kThreads, 2 * kThreads * sizeof(N), context.stream, o.x.as<T>(), rows, width,
             o.statistics.as<N>(), o.dy.as<T>(), slice_rows,
             reinterpret_cast<N*>(context.scratch.data()));
    add_slices<N>(context, slices, o);
  });
}

void layer_norm_backward(KernelContext& context, const LayerNormBackward& o) {
  bool done = false;
  if (o.x.dtype != DType::kF64)
    with_storage(o.x.dtype, [&]<class T>(T) {
      const BackwardRows<T> operands = backward_rows<T>(o.data());
      if (operands.rows == 0 || !rows_are_aligned<T>(operands.width, operands.x, operands.dy,
                                                     operands.dx, operands.gamma))
        return;
      const std::int64_t wanted = divide_up(operands.rows, kWarps * 4),
                         blocks = wanted < kSlices ? wanted : kSlices;
      with_row_kind<T>(operands.width, true,
                       [&]<int kElements, int kVector>(std::integral_constant<int, kElements>,
                                                       std::integral_constant<int, kVector>) {
                         if constexpr (kElements > 0 && kVector > 1) {
                           launch("layer_norm_backward", backward_at_once<T, kElements, kVector>,
                                  {static_cast<unsigned>(blocks)}, kThreads,
                                  2 * static_cast<std::size_t>(operands.width) * sizeof(float),
                                  context.stream, operands,
                                  reinterpret_cast<float*>(context.scratch.data()));
                           add_slices<float>(context, blocks, o.parameters());
                           done = true;
                         }
                       });
    });
  if (done) return;
  cuda::layer_norm_backward_parameters(context, o.parameters());
  cuda::layer_norm_backward_data(context, o.data());
}

}  // namespace engine::ops::cuda
