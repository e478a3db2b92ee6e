// Batch normalization: the passes that write an activation (bound by bytes), and those over
// [channels] alone (bound by the launch). A thread keeps the values of its pack of channels in
// registers and has several rows in flight at once. The last rows come first: these passes follow
// others over the same operands, whose end may still be in a cache.
#include "engine/ops/norm/batch_norm_cuda.h"

#include "engine/ops/common/rows.h"
#include "engine/ops/device/row_blocks.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

// Rows that a thread has in flight at once: fewer if a pack takes more registers.
template <int W>
inline constexpr int kRows = W >= 8 ? 2 : 4;
constexpr int kRowsEach = 8;      // amortizes the loads of [channels] over that many rows
constexpr int kMaxBlocks = 2112;  // sixteen for each multiprocessor of the largest devices
constexpr int kThreads = 128;     // for the passes over [channels]

RowBlocks blocks_of(std::int64_t rows, std::int64_t channels, int width) {
  return make_row_blocks(rows, channels, width, kRowsEach, kMaxBlocks);
}

template <class T>
struct Normalize {
  const T* x;
  const Wide<T>*mean, *inverse_std, *gamma, *beta;
  const T* residual;  // or nullptr
  bool relu;
  T* y;
};

template <class T, int W>
__global__ void __launch_bounds__(kRowThreads, 2) normalize(Normalize<T> o, RowBlocks b) {
  const RowPlace p = row_place<W>(b, gridDim.x - 1 - blockIdx.x);
  if (!p.inside) return;
  Wide<T> middle[W], scale[W], shift[W];
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j) {
    middle[j] = o.mean[p.channel + j];
    scale[j] = o.inverse_std[p.channel + j] * o.gamma[p.channel + j];
    shift[j] = o.beta[p.channel + j];
  }
  for (std::int64_t row = p.first; row < p.last; row += std::int64_t{kRows<W>} * b.lanes) {
    Pack<T, W> in[kRows<W>], more[kRows<W>];
    ENGINE_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      const std::int64_t here = row + std::int64_t{r} * b.lanes;
      if (here >= p.last) continue;
      in[r] = load_pack<W>(o.x + here * b.channels + p.channel);
      if (o.residual != nullptr) more[r] = load_pack<W>(o.residual + here * b.channels + p.channel);
    }
    ENGINE_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      const std::int64_t here = row + std::int64_t{r} * b.lanes;
      if (here >= p.last) continue;
      ENGINE_UNROLL
      for (int j = 0; j < W; ++j) {
        Wide<T> value = (to_wide(in[r].at[j]) - middle[j]) * scale[j] + shift[j];
        if (o.residual != nullptr) value += to_wide(more[r].at[j]);
        in[r].at[j] = from_wide<T>(o.relu && value < 0 ? Wide<T>(0) : value);
      }
      store_pack<W>(o.y + here * b.channels + p.channel, in[r]);
    }
  }
}

// dx = scale * ((g - sum(g) / rows) - (x - mean) * slope)
template <class T>
struct BackwardData {
  const T *x, *y, *dy;  // y: output of the ReLU, or nullptr
  const Wide<T>*mean, *inverse_std, *gamma;
  const double* sums;
  double inverse_rows;
  bool add;
  T* dx;
};

template <class T, int W>
__global__ void __launch_bounds__(kRowThreads, 2) backward_data(BackwardData<T> o, RowBlocks b) {
  const RowPlace p = row_place<W>(b, gridDim.x - 1 - blockIdx.x);
  if (!p.inside) return;
  using N = Wide<T>;
  N middle[W], scale[W], mean_g[W], slope[W];
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j) {
    const int c = p.channel + j;
    middle[j] = o.mean[c];
    scale[j] = o.gamma[c] * o.inverse_std[c];
    mean_g[j] = static_cast<N>(o.sums[c] * o.inverse_rows);
    slope[j] = static_cast<N>(o.sums[b.channels + c] * o.inverse_rows) * o.inverse_std[c];
  }
  for (std::int64_t row = p.first; row < p.last; row += std::int64_t{kRows<W>} * b.lanes) {
    Pack<T, W> in[kRows<W>], out[kRows<W>], g[kRows<W>], before[kRows<W>];
    ENGINE_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      const std::int64_t here = row + std::int64_t{r} * b.lanes, at = here * b.channels + p.channel;
      if (here >= p.last) continue;
      in[r] = load_pack<W>(o.x + at);
      g[r] = load_pack<W>(o.dy + at);
      if (o.y != nullptr) out[r] = load_pack<W>(o.y + at);
      if (o.add) before[r] = load_pack<W>(o.dx + at);
    }
    ENGINE_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      const std::int64_t here = row + std::int64_t{r} * b.lanes;
      if (here >= p.last) continue;
      ENGINE_UNROLL
      for (int j = 0; j < W; ++j) {
        const N gradient = o.y == nullptr || to_wide(out[r].at[j]) > 0 ? to_wide(g[r].at[j]) : 0;
        const N value =
            scale[j] * ((gradient - mean_g[j]) - (to_wide(in[r].at[j]) - middle[j]) * slope[j]);
        g[r].at[j] = from_wide<T>(o.add ? to_wide(before[r].at[j]) + value : value);
      }
      store_pack<W>(o.dx + here * b.channels + p.channel, g[r]);
    }
  }
}

__device__ __forceinline__ int channel_of_thread() {
  return static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
}

template <class N>
struct Finish {
  const double* sums;
  int channels;
  bool any;  // true if there are rows
  double biased,
      unbiased;  // factors of the squared differences; unbiased is 0 for one row or none
  double eps, momentum;
  N *mean, *inverse_std, *running_mean, *running_var;  // the running ones may be nullptr
};

template <class N>
__global__ void finish_statistics(Finish<N> o) {
  const int c = channel_of_thread();
  if (c >= o.channels) return;
  const double m = o.any ? o.sums[c] : 0, squares = o.any ? o.sums[o.channels + c] : 0;
  o.mean[c] = static_cast<N>(m);
  o.inverse_std[c] = static_cast<N>(1 / sqrt(squares * o.biased + o.eps));
  if (o.any && o.running_mean != nullptr)
    o.running_mean[c] = static_cast<N>((1 - o.momentum) * o.running_mean[c] + o.momentum * m);
  if (o.unbiased > 0 && o.running_var != nullptr)
    o.running_var[c] =
        static_cast<N>((1 - o.momentum) * o.running_var[c] + o.momentum * (squares * o.unbiased));
}

template <class N>
__global__ void from_running(const N* running_mean, const N* running_var, double eps, int channels,
                             N* mean, N* inverse_std) {
  const int c = channel_of_thread();
  if (c >= channels) return;
  mean[c] = running_mean[c];
  inverse_std[c] = static_cast<N>(1 / sqrt(running_var[c] + eps));
}

template <class N>
__global__ void backward_parameters(const double* sums, int channels, bool add, N* dgamma,
                                    N* dbeta) {
  const int c = channel_of_thread();
  if (c >= channels) return;
  const N gamma = static_cast<N>(sums[channels + c]), beta = static_cast<N>(sums[c]);
  dgamma[c] = add ? dgamma[c] + gamma : gamma;
  dbeta[c] = add ? dbeta[c] + beta : beta;
}

// Calls call(double{}) for f64, otherwise call(float{}).
template <class Call>
void with_number(DType dtype, Call call) {
  dtype == DType::kF64 ? call(double{}) : call(float{});
}

Grid channel_grid(std::int64_t channels) {
  return {static_cast<unsigned>(divide_up(channels, kThreads))};
}

}  // namespace

void batch_norm_finish_statistics(KernelContext& context, const BatchNormFinishStatistics& o) {
  with_number(o.mean.dtype, [&]<class N>(N) {
    const Finish<N> operands{o.sums.as<double>(),
                             static_cast<int>(o.mean.count()),
                             o.rows > 0,
                             o.rows > 0 ? 1 / static_cast<double>(o.rows) : 0,
                             o.rows > 1 ? 1 / static_cast<double>(o.rows - 1) : 0,
                             o.eps,
                             o.momentum,
                             o.mean.as<N>(),
                             o.inverse_std.as<N>(),
                             o.running_mean.as<N>(),
                             o.running_var.as<N>()};
    launch("batch_norm_finish_statistics", finish_statistics<N>, channel_grid(o.mean.count()),
           kThreads, 0, context.stream, operands);
  });
}

void batch_norm_from_running(KernelContext& context, const BatchNormFromRunning& o) {
  with_number(o.mean.dtype, [&]<class N>(N) {
    launch("batch_norm_from_running", from_running<N>, channel_grid(o.mean.count()), kThreads, 0,
           context.stream, o.running_mean.as<N>(), o.running_var.as<N>(), o.eps,
           static_cast<int>(o.mean.count()), o.mean.as<N>(), o.inverse_std.as<N>());
  });
}

void batch_norm_backward_parameters(KernelContext& context, const BatchNormBackwardParameters& o) {
  with_number(o.dgamma.dtype, [&]<class N>(N) {
    launch("batch_norm_backward_parameters", backward_parameters<N>, channel_grid(o.dgamma.count()),
           kThreads, 0, context.stream, o.sums.as<double>(), static_cast<int>(o.dgamma.count()),
           o.write == Write::kAdd, o.dgamma.as<N>(), o.dbeta.as<N>());
  });
}

void batch_norm_normalize(KernelContext& context, const BatchNormNormalize& o) {
  const RowSizes sizes = row_sizes(o.x);
  if (sizes.rows == 0) return;
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    const Normalize<T> operands{o.x.as<T>(),
                                o.mean.as<Wide<T>>(),
                                o.inverse_std.as<Wide<T>>(),
                                o.gamma.as<Wide<T>>(),
                                o.beta.as<Wide<T>>(),
                                o.residual.as<T>(),
                                o.relu,
                                o.y.as<T>()};
    with_width<T>(sizes.width, {o.x.data, o.residual.data, o.y.data},
                  [&]<int W>(std::integral_constant<int, W>) {
                    const RowBlocks blocks = blocks_of(sizes.rows, sizes.width, W);
                    launch("batch_norm_normalize", normalize<T, W>, blocks.grid(), kRowThreads, 0,
                           context.stream, operands, blocks);
                  });
  });
}

void batch_norm_backward_data(KernelContext& context, const BatchNormBackwardData& o) {
  const RowSizes sizes = row_sizes(o.x);
  if (sizes.rows == 0) return;
  with_any_storage(o.x.dtype, [&]<class T>(T) {
    const BackwardData<T> operands{o.x.as<T>(),
                                   o.y.as<T>(),
                                   o.dy.as<T>(),
                                   o.mean.as<Wide<T>>(),
                                   o.inverse_std.as<Wide<T>>(),
                                   o.gamma.as<Wide<T>>(),
                                   o.sums.as<double>(),
                                   1 / static_cast<double>(o.rows),
                                   o.write == Write::kAdd,
                                   o.dx.as<T>()};
    with_width<T>(sizes.width, {o.x.data, o.y.data, o.dy.data, o.dx.data},
                  [&]<int W>(std::integral_constant<int, W>) {
                    const RowBlocks blocks = blocks_of(sizes.rows, sizes.width, W);
                    launch("batch_norm_backward_data", backward_data<T, W>, blocks.grid(),
                           kRowThreads, 0, context.stream, operands, blocks);
                  });
  });
}

}  // namespace engine::ops::cuda
