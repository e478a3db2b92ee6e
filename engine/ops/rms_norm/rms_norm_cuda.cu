// As layer normalization (layer_norm_cuda.cu): one warp per row, which it keeps in registers, or
// one block per row, which reads it again from the cache. The gradient of gamma: sums over slices
// of rows in scratch, then the sum of the slices, each in one order; if rows fit into a warp's
// registers, one kernel computes dx and those sums. A row is one part (rms_norm.h). Bound by bytes.
#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/norm/layer_norm_rows.h"
#include "engine/ops/rms_norm/rms_norm_cuda.h"

namespace engine::ops::cuda {
namespace {

using namespace layer_norm_rows;

constexpr int kSlices = 256, kMinRows = 32;  // for the gradient of gamma

// Places of the parts of all rows.
struct Parts {
  std::int64_t total, stride, first, count;
  int width;

  explicit Parts(const RmsNormSizes& s)
      : total(s.rows * s.count),
        stride(s.stride),
        first(s.first),
        count(s.count),
        width(static_cast<int>(s.width)) {}
  // The offset of the first element of part r.
  __device__ __forceinline__ std::int64_t at(std::int64_t r) const {
    const std::int64_t row = quotient(r, count);
    return row * stride + first + (r - row * count) * width;
  }
};

template <class T>
struct ForwardParts {
  const T* x;
  Parts parts;
  const Wide<T>* gamma;
  Wide<T> eps;
  T* y;
  Wide<T>* inverse_rms;
};

// Returns the inverse root mean square from the sum of squares.
template <class T>
__device__ __forceinline__ Wide<T> inverse_of(const ForwardParts<T>& o, Wide<T> squares) {
  return inverse_root(divide_fast(squares, static_cast<Wide<T>>(o.parts.width)) + o.eps);
}

// Scales kVector elements and stores them.
template <int kVector, class T>
__device__ __forceinline__ void store_y(const ForwardParts<T>& o, std::int64_t at, int c,
                                        const Wide<T>* x, Wide<T> inverse) {
  Wide<T> y[kVector];
  load_floats<kVector>(o.gamma + c, y);
#pragma unroll
  for (int i = 0; i < kVector; ++i) y[i] *= x[i] * inverse;
  store_floats<kVector>(o.y + at + c, y);
}

template <class T, int kElements, int kVector>
__global__ void __launch_bounds__(kThreads) forward_by_warps(ForwardParts<T> o) {
  using N = Wide<T>;
  const std::int64_t r = std::int64_t{blockIdx.x} * kWarps + warp_index();
  if (r >= o.parts.total) return;
  const std::int64_t at = o.parts.at(r);
  N value[kElements], squares = 0;
#pragma unroll
  for (int k = 0; k < kElements; k += kVector) {
    const int c = column<kWarp, kVector>(k / kVector);
    if (c >= o.parts.width) continue;
    load_floats<kVector>(o.x + at + c, value + k);
#pragma unroll
    for (int i = k; i < k + kVector; ++i) squares += value[i] * value[i];
  }
  const N inverse = inverse_of(o, warp_sum(squares));
#pragma unroll
  for (int k = 0; k < kElements; k += kVector) {
    const int c = column<kWarp, kVector>(k / kVector);
    if (c < o.parts.width) store_y<kVector>(o, at, c, value + k, inverse);
  }
  if (o.inverse_rms != nullptr && lane_index() == 0) o.inverse_rms[r] = inverse;
}

template <class T, int kVector>
__global__ void __launch_bounds__(kThreads) forward_by_blocks(ForwardParts<T> o) {
  using N = Wide<T>;
  N* partial = block_shared<N[kWarps]>();
  const std::int64_t r = blockIdx.x, at = o.parts.at(r);
  N v[kVector], squares = 0;
  for (int c = column<kThreads, kVector>(0); c < o.parts.width; c += kThreads * kVector) {
    load_floats<kVector>(o.x + at + c, v);
    for (int i = 0; i < kVector; ++i) squares += v[i] * v[i];
  }
  const N inverse = inverse_of(o, block_sum(squares, partial));
  for (int c = column<kThreads, kVector>(0); c < o.parts.width; c += kThreads * kVector) {
    load_floats<kVector>(o.x + at + c, v);
    store_y<kVector>(o, at, c, v, inverse);
  }
  if (o.inverse_rms != nullptr && threadIdx.x == 0) o.inverse_rms[r] = inverse;
}

template <class T>
struct BackwardParts {
  const T* x;
  Parts parts;
  const Wide<T>*gamma, *inverse_rms;
  const T* dy;
  bool add;
  T* dx;
};

// Stores kVector elements of dx, computed from the mean over the row.
template <int kVector, class T>
__device__ __forceinline__ void store_dx(const BackwardParts<T>& o, std::int64_t at,
                                         const Wide<T>* g, const Wide<T>* xhat, Wide<T> mean,
                                         Wide<T> inverse) {
  Wide<T> d[kVector], before[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) d[i] = inverse * (g[i] - xhat[i] * mean);
  if (o.add) {
    load_floats<kVector>(o.dx + at, before);
#pragma unroll
    for (int i = 0; i < kVector; ++i) d[i] += before[i];
  }
  store_floats<kVector>(o.dx + at, d);
}

template <class T, int kVector>
__global__ void __launch_bounds__(kThreads) backward_by_blocks(BackwardParts<T> o) {
  using N = Wide<T>;
  N* partial = block_shared<N[kWarps]>();
  const std::int64_t r = blockIdx.x, at = o.parts.at(r);
  const N inverse = o.inverse_rms[r];
  N g[kVector], xhat[kVector], weight[kVector], products = 0;
  const auto load = [&](int c) {
    load_floats<kVector>(o.x + at + c, xhat);
    load_floats<kVector>(o.dy + at + c, g);
    load_floats<kVector>(o.gamma + c, weight);
#pragma unroll
    for (int i = 0; i < kVector; ++i) xhat[i] *= inverse, g[i] *= weight[i];
  };
  for (int c = column<kThreads, kVector>(0); c < o.parts.width; c += kThreads * kVector) {
    load(c);
    for (int i = 0; i < kVector; ++i) products += g[i] * xhat[i];
  }
  products = divide_fast(block_sum(products, partial), static_cast<N>(o.parts.width));
  for (int c = column<kThreads, kVector>(0); c < o.parts.width; c += kThreads * kVector) {
    load(c);
    store_dx<kVector>(o, at + c, g, xhat, products, inverse);
  }
}

// Computes everything in one pass: dx, and the sums over the rows that each of the block's warps
// processes, which stay in registers. sums [blocks, width].
template <class T, int kElements, int kVector>
__global__ void __launch_bounds__(kThreads) backward_at_once(BackwardParts<T> o, Wide<T>* sums) {
  using N = Wide<T>;
  N* shared = &block_shared<N>();  // [width]
  N dgamma[kElements] = {};
  const int width = o.parts.width;
  for (std::int64_t r = std::int64_t{blockIdx.x} * kWarps + warp_index(); r < o.parts.total;
       r += std::int64_t{gridDim.x} * kWarps) {
    const std::int64_t at = o.parts.at(r);
    const N inverse = o.inverse_rms[r];
    N g[kElements], xhat[kElements], products = 0;
#pragma unroll
    for (int k = 0; k < kElements; k += kVector) {
      const int c = column<kWarp, kVector>(k / kVector);
      if (c >= width) continue;
      load_floats<kVector>(o.x + at + c, xhat + k);
      load_floats<kVector>(o.dy + at + c, g + k);
    }
#pragma unroll
    for (int k = 0; k < kElements; k += kVector) {
      const int c = column<kWarp, kVector>(k / kVector);
      if (c >= width) continue;
      N weight[kVector];
      load_floats<kVector>(o.gamma + c, weight);
#pragma unroll
      for (int i = k; i < k + kVector; ++i) {
        xhat[i] *= inverse;
        dgamma[i] += g[i] * xhat[i];
        g[i] *= weight[i - k];
        products += g[i] * xhat[i];
      }
    }
    products = divide_fast(warp_sum(products), static_cast<N>(width));
#pragma unroll
    for (int k = 0; k < kElements; k += kVector) {
      const int c = column<kWarp, kVector>(k / kVector);
      if (c < width) store_dx<kVector>(o, at + c, g + k, xhat + k, products, inverse);
    }
  }
  for (int w = 0; w < kWarps; ++w) {  // one warp after the other, for a fixed order
    if (warp_index() == w) {
#pragma unroll
      for (int k = 0; k < kElements; k += kVector) {
        const int c = column<kWarp, kVector>(k / kVector);
        if (c >= width) continue;
#pragma unroll
        for (int i = 0; i < kVector; ++i)
          shared[c + i] = (w == 0 ? 0 : shared[c + i]) + dgamma[k + i];
      }
    }
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads)
    sums[std::int64_t{blockIdx.x} * width + i] = shared[i];
}

// Each block sums 32 columns over one slice of the rows; its warps process the rows round-robin.
// sums [slices, width].
template <class T>
__global__ void __launch_bounds__(kThreads)
    sums_of_slices(BackwardParts<T> o, std::int64_t slice_rows, Wide<T>* sums) {
  using Shared = Wide<T>[kWarps][kWarp];
  Shared& shared = block_shared<Shared>();
  const int c = static_cast<int>(blockIdx.x) * kWarp + lane_index(), w = warp_index();
  const std::int64_t first = blockIdx.y * slice_rows,
                     last = first + slice_rows < o.parts.total ? first + slice_rows : o.parts.total;
  Wide<T> sum = 0;
  if (c < o.parts.width) {
#pragma unroll 4
    for (std::int64_t r = first + w; r < last; r += kWarps) {
      const std::int64_t at = o.parts.at(r) + c;
      sum += to_wide(o.dy[at]) * to_wide(o.x[at]) * o.inverse_rms[r];
    }
  }
  shared[w][lane_index()] = sum;
  __syncthreads();
  if (w > 0 || c >= o.parts.width) return;
  for (int other = 1; other < kWarps; ++other) sum += shared[other][lane_index()];
  sums[std::int64_t{blockIdx.y} * o.parts.width + c] = sum;
}

template <class N>
__global__ void __launch_bounds__(kThreads)
    sum_of_slices(const N* sums, int slices, int width, bool add, N* dgamma) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= width) return;
  N sum = 0;
#pragma unroll 8
  for (int s = 0; s < slices; ++s) sum += sums[std::int64_t{s} * width + i];
  dgamma[i] = add ? dgamma[i] + sum : sum;
}

template <class T, class... Addresses>
bool parts_are_aligned(const Parts& parts, const Addresses*... address) {
  return parts.stride % Packed<T>::kCount == 0 && parts.first % Packed<T>::kCount == 0 &&
         rows_are_aligned<T>(parts.width, address...);
}

// Computes dx, and the sums of slices for dgamma; returns the number of slices.
template <class T>
std::int64_t start_backward(KernelContext& context, const BackwardParts<T>& o, Wide<T>* sums) {
  const Parts& parts = o.parts;
  const bool aligned = parts_are_aligned<T>(parts, o.x, o.dy, o.dx, o.gamma);
  const std::int64_t blocks = divide_up(parts.total, kWarps * 4),
                     wanted = divide_up(parts.total, slices_of<Wide<T>>(kSlices)),
                     slice_rows = wanted < kMinRows ? kMinRows : wanted;
  std::int64_t slices = 0;
  if (o.dx != nullptr)
    with_row_kind<T>(
        parts.width, aligned,
        [&]<int kElements, int kVector>(std::integral_constant<int, kElements>,
                                        std::integral_constant<int, kVector>) {
          if constexpr (kElements > 0) {
            slices = blocks < slices_of<Wide<T>>(kSlices) ? blocks : slices_of<Wide<T>>(kSlices);
            launch("rms_norm_backward", backward_at_once<T, kElements, kVector>,
                   {static_cast<unsigned>(slices)}, kThreads,
                   static_cast<std::size_t>(parts.width) * sizeof(Wide<T>), context.stream, o,
                   sums);
          }
        });
  if (slices > 0) return slices;
  slices = divide_up(parts.total, slice_rows);
  launch("rms_norm_sums", sums_of_slices<T>,
         {static_cast<unsigned>(divide_up(parts.width, kWarp)), static_cast<unsigned>(slices)},
         kThreads, kThreads * sizeof(Wide<T>), context.stream, o, slice_rows, sums);
  if (o.dx != nullptr)
    with_row_kind<T>(parts.width, aligned,
                     [&]<int kElements, int kVector>(std::integral_constant<int, kElements>,
                                                     std::integral_constant<int, kVector>) {
                       if constexpr (kElements == 0)
                         launch("rms_norm_backward_data", backward_by_blocks<T, kVector>,
                                row_grid(0, parts.total), kThreads, kWarps * sizeof(Wide<T>),
                                context.stream, o);
                     });
  return slices;
}

}  // namespace

std::size_t rms_norm_scratch_bytes(std::int64_t width) {
  return kSlices * static_cast<std::size_t>(width) * sizeof(float);
}

void rms_norm_forward(KernelContext& context, const RmsNormForward& o, const RmsNormSizes& s) {
  if (s.rows == 0) return;
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    using N = Wide<T>;
    const ForwardParts<T> operands{o.x.as<T>(),           Parts(s),    o.gamma.as<N>(),
                                   static_cast<N>(o.eps), o.y.as<T>(), o.inverse_rms.as<N>()};
    const Parts& parts = operands.parts;
    with_row_kind<T>(parts.width,
                     parts_are_aligned<T>(parts, operands.x, operands.y, operands.gamma),
                     [&]<int kElements, int kVector>(std::integral_constant<int, kElements>,
                                                     std::integral_constant<int, kVector>) {
                       const auto start = [&](auto kernel) {
                         launch("rms_norm_forward", kernel, row_grid(kElements, parts.total),
                                kThreads, kWarps * sizeof(N), context.stream, operands);
                       };
                       if constexpr (kElements == 0)
                         start(forward_by_blocks<T, kVector>);
                       else
                         start(forward_by_warps<T, kElements, kVector>);
                     });
  });
}

void rms_norm_backward(KernelContext& context, const RmsNormBackward& o, const RmsNormSizes& s) {
  const int width = static_cast<int>(s.width);
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    using N = Wide<T>;
    auto* sums = reinterpret_cast<N*>(context.scratch.data());
    std::int64_t slices = 0;
    if (s.rows > 0)
      slices = start_backward<T>(context,
                                 {o.x.as<T>(), Parts(s), o.gamma.as<N>(), o.inverse_rms.as<N>(),
                                  o.dy.as<T>(), o.dx_write == Write::kAdd, o.dx.as<T>()},
                                 sums);
    launch("rms_norm_sum", sum_of_slices<N>, {static_cast<unsigned>(divide_up(width, kThreads))},
           kThreads, 0, context.stream, sums, static_cast<int>(slices), width,
           o.parameter_write == Write::kAdd, o.dgamma.as<N>());
  });
}

}  // namespace engine::ops::cuda
