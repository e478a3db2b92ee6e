// Batch normalization: sums over the rows. A first kernel writes one partial result per block and
// channel, a second merges these in float64 in a fixed order. Bound by bytes; each operand is read
// once.
//
// Statistics: a thread loads kRows rows at a time into registers, and computes their mean and then
// their squared differences from it. It merges these into its previous result by the pairwise
// formula of Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
// sample variances", 1979. All values are relative to the first row of the block, so that a large
// common value costs no digits. Blocks are merged by two passes over their results: the mean, then
// the differences from it.
//
// The textbook formula E[x^2] - E[x]^2 would need a single pass and no merging, but it subtracts
// two large numbers that are nearly equal if the mean is large compared with the deviation, and in
// float32 can lose all digits and even become negative.
#include "engine/ops/common/rows.h"
#include "engine/ops/device/row_blocks.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/norm/batch_norm_cuda.h"

namespace engine::ops::cuda {
namespace {

// Rows that a thread has in registers at once for the statistics, fewer if a pack takes more
// registers.
template <int W>
inline constexpr int kRows = W >= 8 ? 4 : 8;
constexpr int kRowsEach = 8;      // amortizes the merging of the lanes over that many rows
constexpr int kMaxBlocks = 1056;  // eight for each multiprocessor of the largest devices

// The same for the backward pass, which has up to four operands.
template <int W>
inline constexpr int kBackwardRows = W >= 8 ? 2 : 4;

RowBlocks blocks_of(std::int64_t rows, std::int64_t channels, int width) {
  return make_row_blocks(rows, channels, width, kRowsEach, kMaxBlocks);
}

// The mean and squared differences of `count` values of one channel, for each channel of a pack.
template <class N, int W>
struct Moments {
  N mean[W] = {}, squares[W] = {};
  N count = 0;
};

// Adds the rows from `row` on, at most kRows; exactly kRows with kWhole.
template <bool kWhole, class T, int W>
__device__ __forceinline__ void add_rows(const T* x, const RowBlocks& b, const RowPlace& p,
                                         std::int64_t row, const Wide<T> (&shift)[W],
                                         Moments<Wide<T>, W>& moments) {
  using N = Wide<T>;
  const int here = kWhole ? kRows<W> : static_cast<int>((p.last - row + b.lanes - 1) / b.lanes);
  Pack<T, W> in[kRows<W>];
  ENGINE_UNROLL
  for (int r = 0; r < kRows<W>; ++r)
    if (kWhole || r < here)
      in[r] = load_pack<W>(x + (row + std::int64_t{r} * b.lanes) * b.channels + p.channel);
  const N n = static_cast<N>(here), inverse = 1 / n, weight = n / (moments.count + n);
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j) {
    N sum = 0, squares = 0;
    ENGINE_UNROLL
    for (int r = 0; r < kRows<W>; ++r)
      if (kWhole || r < here) sum += to_wide(in[r].at[j]) - shift[j];
    const N mean = sum * inverse;
    ENGINE_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      const N d = kWhole || r < here ? to_wide(in[r].at[j]) - shift[j] - mean : 0;
      squares += d * d;
    }
    const N difference = mean - moments.mean[j];
    moments.squares[j] += squares + difference * difference * (moments.count * weight);
    moments.mean[j] += difference * weight;
  }
  moments.count += n;
}

template <class N, int W>
struct SharedMoments {
  N mean[W * kRowThreads], squares[W * kRowThreads], count[kRowThreads];
};

// Merges the lanes of the block by halving; the result is in lane 0.
template <class N, int W>
__device__ __forceinline__ void merge_lanes(const RowBlocks& b, int lane, Moments<N, W>& mine,
                                            SharedMoments<N, W>& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const auto put = [&] {
    ENGINE_UNROLL
    for (int j = 0; j < W; ++j) {
      shared.mean[j * kRowThreads + thread] = mine.mean[j];
      shared.squares[j * kRowThreads + thread] = mine.squares[j];
    }
    shared.count[thread] = mine.count;
  };
  put();
  int half = 1;
  while (2 * half < b.lanes) half *= 2;
  for (; half > 0; half /= 2) {
    __syncthreads();
    if (lane >= half || lane + half >= b.lanes) continue;
    const int other = thread + half * b.columns;
    const N n = shared.count[other];
    if (!(n > 0)) continue;  // lower lanes get rows before higher ones do
    const N weight = n / (mine.count + n);
    ENGINE_UNROLL
    for (int j = 0; j < W; ++j) {
      const N difference = shared.mean[j * kRowThreads + other] - mine.mean[j];
      mine.squares[j] +=
          shared.squares[j * kRowThreads + other] + difference * difference * (mine.count * weight);
      mine.mean[j] += difference * weight;
    }
    mine.count += n;
    put();
  }
}

// partial [row blocks, 2, channels]: the mean and squared differences of each block of rows.
template <class T, int W>
__global__ void __launch_bounds__(kRowThreads, 2)
    block_statistics(const T* x, RowBlocks b, double* partial) {
  using N = Wide<T>;
  auto& shared = block_shared<SharedMoments<N, W>>();
  const RowPlace p = row_place<W>(b, blockIdx.x);
  Moments<N, W> moments;
  N shift[W] = {};
  if (p.inside) {
    const Pack<T, W> first = load_pack<W>(x + (p.first - p.lane) * b.channels + p.channel);
    ENGINE_UNROLL
    for (int j = 0; j < W; ++j) shift[j] = to_wide(first.at[j]);
    std::int64_t row = p.first;
    const std::int64_t step = std::int64_t{kRows<W>} * b.lanes;
    for (; row + step - b.lanes < p.last; row += step) add_rows<true>(x, b, p, row, shift, moments);
    if (row < p.last) add_rows<false>(x, b, p, row, shift, moments);
  }
  merge_lanes(b, p.lane, moments, shared);
  if (!p.inside || p.lane != 0) return;
  double* mean = partial + std::int64_t{blockIdx.x} * 2 * b.channels + p.channel;
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j) {
    mean[j] = static_cast<double>(shift[j]) + moments.mean[j];
    mean[b.channels + j] = moments.squares[j];
  }
}

// Computes a block's contribution to backward: sums of g and of g (x - mean). g is written or added
// to `dresidual`.
template <class T>
struct BackwardSums {
  const T *x, *y, *dy;  // y: output of the ReLU, or nullptr
  const Wide<T>* mean;
  T* dresidual;  // or nullptr
  bool relu, residual, add;
};

template <class T, int W>
__global__ void __launch_bounds__(kRowThreads, 2)
    block_backward_sums(BackwardSums<T> o, RowBlocks b, double* partial) {
  using N = Wide<T>;
  N* shared = &block_shared<N>();
  const RowPlace p = row_place<W>(b, blockIdx.x);
  N sums[2 * W] = {};
  N middle[W];
  if (p.inside) {
    ENGINE_UNROLL
    for (int j = 0; j < W; ++j) middle[j] = o.mean[p.channel + j];
    for (std::int64_t row = p.first; row < p.last;
         row += std::int64_t{kBackwardRows<W>} * b.lanes) {
      Pack<T, W> in[kBackwardRows<W>], out[kBackwardRows<W>], g[kBackwardRows<W>],
          before[kBackwardRows<W>];
      ENGINE_UNROLL
      for (int r = 0; r < kBackwardRows<W>; ++r) {
        const std::int64_t at = (row + std::int64_t{r} * b.lanes) * b.channels + p.channel;
        if (row + std::int64_t{r} * b.lanes >= p.last) continue;
        in[r] = load_pack<W>(o.x + at);
        g[r] = load_pack<W>(o.dy + at);
        if (o.relu) out[r] = load_pack<W>(o.y + at);
        if (o.residual && o.add) before[r] = load_pack<W>(o.dresidual + at);
      }
      ENGINE_UNROLL
      for (int r = 0; r < kBackwardRows<W>; ++r) {
        if (row + std::int64_t{r} * b.lanes >= p.last) continue;
        ENGINE_UNROLL
        for (int j = 0; j < W; ++j) {
          const N value = !o.relu || to_wide(out[r].at[j]) > 0 ? to_wide(g[r].at[j]) : 0;
          sums[j] += value;
          sums[W + j] += value * (to_wide(in[r].at[j]) - middle[j]);
          g[r].at[j] = from_wide<T>(o.add ? to_wide(before[r].at[j]) + value : value);
        }
        if (o.residual)
          store_pack<W>(o.dresidual + (row + std::int64_t{r} * b.lanes) * b.channels + p.channel,
                        g[r]);
      }
    }
  }
  sum_over_lanes(b, p.lane, sums, shared);
  if (!p.inside || p.lane != 0) return;
  double* g_sum = partial + std::int64_t{blockIdx.x} * 2 * b.channels + p.channel;
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j) {
    g_sum[j] = sums[j];
    g_sum[b.channels + j] = sums[W + j];
  }
}

// Second stage: blocks of four channels, 32 bytes of each line of partial results.
constexpr int kMergeThreads = 256, kMergeChannels = 4, kMergeLanes = kMergeThreads / kMergeChannels;

struct MergePlace {
  bool inside;
  int channel, lane;
};
__device__ __forceinline__ MergePlace merge_place(const RowBlocks& b) {
  const int thread = static_cast<int>(threadIdx.x);
  const int channel = static_cast<int>(blockIdx.x) * kMergeChannels + thread % kMergeChannels;
  return {channel < b.channels, channel, thread / kMergeChannels};
}

// The sum over the block's lanes of this thread's channel, in every thread. `shared` has
// kMergeChannels elements for each warp.
__device__ __forceinline__ double sum_of_channel(double value, double* shared) {
  for (int mask = kWarp / 2; mask >= kMergeChannels; mask /= 2) value += shuffle_xor(value, mask);
  __syncthreads();
  if (lane_index() < kMergeChannels) shared[warp_index() * kMergeChannels + lane_index()] = value;
  __syncthreads();
  double total = 0;
  for (int w = 0; w < kMergeThreads / kWarp; ++w)
    total += shared[w * kMergeChannels + static_cast<int>(threadIdx.x) % kMergeChannels];
  return total;
}

struct SharedTotals {
  double at[kMergeThreads / kWarp * kMergeChannels];
};

__global__ void merge_statistics(const double* partial, RowBlocks b, double inverse_rows,
                                 double* sums) {
  double* shared = block_shared<SharedTotals>().at;
  const MergePlace p = merge_place(b);
  const auto rows_of = [&](int block) {
    const std::int64_t left = b.rows - block * b.rows_per_block;
    return static_cast<double>(left < b.rows_per_block ? left : b.rows_per_block);
  };
  double total = 0;
  for (int k = p.lane; p.inside && k < b.row_blocks; k += kMergeLanes)
    total += rows_of(k) * partial[std::int64_t{k} * 2 * b.channels + p.channel];
  const double mean = sum_of_channel(total, shared) * inverse_rows;
  total = 0;
  for (int k = p.lane; p.inside && k < b.row_blocks; k += kMergeLanes) {
    const double* block = partial + std::int64_t{k} * 2 * b.channels + p.channel;
    const double difference = block[0] - mean;
    total += block[b.channels] + rows_of(k) * difference * difference;
  }
  const double squares = sum_of_channel(total, shared);
  if (!p.inside || p.lane != 0) return;
  sums[p.channel] = mean;
  sums[b.channels + p.channel] = squares;
}

template <class N>
__global__ void merge_backward_sums(const double* partial, RowBlocks b, const N* inverse_std,
                                    double* sums) {
  double* shared = block_shared<SharedTotals>().at;
  const MergePlace p = merge_place(b);
  double g = 0, products = 0;
  for (int k = p.lane; p.inside && k < b.row_blocks; k += kMergeLanes) {
    const double* block = partial + std::int64_t{k} * 2 * b.channels + p.channel;
    g += block[0];
    products += block[b.channels];
  }
  g = sum_of_channel(g, shared);
  products = sum_of_channel(products, shared);
  if (!p.inside || p.lane != 0) return;
  sums[p.channel] = g;
  sums[b.channels + p.channel] = products * inverse_std[p.channel];
}

Grid merge_grid(std::int64_t channels) {
  return {static_cast<unsigned>(divide_up(channels, kMergeChannels))};
}

double* partials(const KernelContext& context) {
  return reinterpret_cast<double*>(context.scratch.data());
}

}  // namespace

std::size_t batch_norm_scratch_bytes(std::int64_t rows, std::int64_t channels, DType dtype) {
  std::int64_t most = 1;
  for (const std::int64_t width :
       {std::int64_t{1}, static_cast<std::int64_t>(16 / size_of(dtype))}) {
    if (channels % width != 0) continue;
    const RowBlocks b = blocks_of(rows, channels, static_cast<int>(width));
    most = std::max(most, max_row_blocks(b, kRowsEach, kMaxBlocks));
  }
  return static_cast<std::size_t>(most * 2 * channels) * sizeof(double);
}

void batch_norm_statistics(KernelContext& context, const TensorView& x, const TensorView& sums) {
  const RowSizes sizes = row_sizes(x);
  if (sizes.rows == 0)
    return engine::cuda::set_bytes_async(sums.data, 0, sums.bytes(), context.stream);
  RowBlocks blocks;
  with_any_storage(x.dtype, [&]<class T>(T) {
    with_width<T>(sizes.width, {x.data}, [&]<int W>(std::integral_constant<int, W>) {
      blocks = blocks_of(sizes.rows, sizes.width, W);
      launch("batch_norm_statistics", block_statistics<T, W>, blocks.grid(), kRowThreads,
             sizeof(SharedMoments<Wide<T>, W>), context.stream, x.as<T>(), blocks,
             partials(context));
    });
  });
  launch("batch_norm_merge_statistics", merge_statistics, merge_grid(sizes.width), kMergeThreads,
         sizeof(SharedTotals), context.stream, partials(context), blocks,
         1 / static_cast<double>(sizes.rows), sums.as<double>());
}

void batch_norm_backward_sums(KernelContext& context, const BatchNormBackwardSums& o) {
  const RowSizes sizes = row_sizes(o.x);
  if (sizes.rows == 0)
    return engine::cuda::set_bytes_async(o.sums.data, 0, o.sums.bytes(), context.stream);
  RowBlocks blocks;
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    const bool residual = static_cast<bool>(o.dresidual);
    const BackwardSums<T> operands{o.x.as<T>(),
                                   o.y.as<T>(),
                                   o.dy.as<T>(),
                                   o.mean.as<Wide<T>>(),
                                   o.dresidual.as<T>(),
                                   static_cast<bool>(o.y),
                                   residual,
                                   residual && o.write_residual == Write::kAdd};
    with_width<T>(sizes.width, {o.x.data, o.y.data, o.dy.data, o.dresidual.data},
                  [&]<int W>(std::integral_constant<int, W>) {
                    blocks = blocks_of(sizes.rows, sizes.width, W);
                    launch("batch_norm_backward_sums", block_backward_sums<T, W>, blocks.grid(),
                           kRowThreads, 2 * W * kRowThreads * sizeof(Wide<T>), context.stream,
                           operands, blocks, partials(context));
                  });
  });
  const auto merge = [&]<class N>(N) {
    launch("batch_norm_merge_backward_sums", merge_backward_sums<N>, merge_grid(sizes.width),
           kMergeThreads, sizeof(SharedTotals), context.stream, partials(context), blocks,
           o.inverse_std.as<N>(), o.sums.as<double>());
  };
  o.x.dtype == DType::kF64 ? merge(double{}) : merge(float{});
}

}  // namespace engine::ops::cuda
