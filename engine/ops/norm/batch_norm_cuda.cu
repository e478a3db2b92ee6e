// Batch normalisation: the passes that write an activation (bound: bytes), and those over
// [channels] alone (bound: the launch). A thread keeps what it needs of its pack of channels in
// registers and has several rows under way at once. The last rows come first: these passes follow
// others over the same operands, whose end is what a cache may still have.
#include "engine/ops/norm/batch_norm_cuda.h"

#include "engine/ops/device/row_blocks.h"
#include "engine/ops/device/storage_dispatch.h"

namespace engine::ops::cuda {
namespace {

// Rows that a thread has under way at once: fewer where a pack takes more registers.
template <int W>
inline constexpr int kRows = W >= 8 ? 2 : 4;
constexpr int kRowsEach = 8;       // spreads the loads of [channels] over that many rows
constexpr int kMostBlocks = 2112;  // sixteen for each processor of the largest devices
constexpr int kThreads = 128;      // of the passes over [channels]

RowBlocks blocks_of(std::int64_t rows, std::int64_t channels, int width) {
  return make_row_blocks(rows, channels, width, kRowsEach, kMostBlocks);
}

template <class T, int W>
__global__ void __launch_bounds__(kRowThreads, 2)
    normalize(const T* x, const float* mean, const float* inverse_std, const float* gamma,
              const float* beta, const T* residual, bool relu, RowBlocks b, T* y) {
  const RowPlace p = row_place<W>(b, gridDim.x - 1 - blockIdx.x);
  if (!p.inside) return;
  float middle[W], scale[W], shift[W];
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j) {
    middle[j] = mean[p.channel + j];
    scale[j] = inverse_std[p.channel + j] * gamma[p.channel + j];
    shift[j] = beta[p.channel + j];
  }
  for (std::int64_t row = p.first; row < p.last; row += std::int64_t{kRows<W>} * b.lanes) {
    Pack<T, W> in[kRows<W>], more[kRows<W>];
    ENGINE_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      const std::int64_t here = row + std::int64_t{r} * b.lanes;
      if (here >= p.last) continue;
      in[r] = load_pack<W>(x + here * b.channels + p.channel);
      if (residual != nullptr) more[r] = load_pack<W>(residual + here * b.channels + p.channel);
    }
    ENGINE_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      const std::int64_t here = row + std::int64_t{r} * b.lanes;
      if (here >= p.last) continue;
      ENGINE_UNROLL
      for (int j = 0; j < W; ++j) {
        float value = (to_float(in[r].at[j]) - middle[j]) * scale[j] + shift[j];
        if (residual != nullptr) value += to_float(more[r].at[j]);
        in[r].at[j] = from_float<T>(relu && value < 0 ? 0.0f : value);
      }
      store_pack<W>(y + here * b.channels + p.channel, in[r]);
    }
  }
}

// dx = scale * ((g - sum(g) / rows) - (x - mean) * slope)
template <class T, int W>
__global__ void __launch_bounds__(kRowThreads, 2)
    backward_data(const T* x, const T* y, const T* dy, const float* mean, const float* inverse_std,
                  const float* gamma, const double* sums, double inverse_rows, bool add,
                  RowBlocks b, T* dx) {
  const RowPlace p = row_place<W>(b, gridDim.x - 1 - blockIdx.x);
  if (!p.inside) return;
  float middle[W], scale[W], mean_g[W], slope[W];
  ENGINE_UNROLL
  for (int j = 0; j < W; ++j) {
    const int c = p.channel + j;
    middle[j] = mean[c];
    scale[j] = gamma[c] * inverse_std[c];
    mean_g[j] = static_cast<float>(sums[c] * inverse_rows);
    slope[j] = static_cast<float>(sums[b.channels + c] * inverse_rows) * inverse_std[c];
  }
  for (std::int64_t row = p.first; row < p.last; row += std::int64_t{kRows<W>} * b.lanes) {
    Pack<T, W> in[kRows<W>], out[kRows<W>], g[kRows<W>], before[kRows<W>];
    ENGINE_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      const std::int64_t here = row + std::int64_t{r} * b.lanes, at = here * b.channels + p.channel;
      if (here >= p.last) continue;
      in[r] = load_pack<W>(x + at);
      g[r] = load_pack<W>(dy + at);
      if (y != nullptr) out[r] = load_pack<W>(y + at);
      if (add) before[r] = load_pack<W>(dx + at);
    }
    ENGINE_UNROLL
    for (int r = 0; r < kRows<W>; ++r) {
      const std::int64_t here = row + std::int64_t{r} * b.lanes;
      if (here >= p.last) continue;
      ENGINE_UNROLL
      for (int j = 0; j < W; ++j) {
        const float gradient =
            y == nullptr || to_float(out[r].at[j]) > 0 ? to_float(g[r].at[j]) : 0;
        const float value =
            scale[j] * ((gradient - mean_g[j]) - (to_float(in[r].at[j]) - middle[j]) * slope[j]);
        g[r].at[j] = from_float<T>(add ? to_float(before[r].at[j]) + value : value);
      }
      store_pack<W>(dx + here * b.channels + p.channel, g[r]);
    }
  }
}

__device__ __forceinline__ int channel_of_thread() {
  return static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
}

// How the running statistics move.
struct Finish {
  double biased,
      unbiased;  // what the squared differences are multiplied by; unbiased 0: of one row, or none
  double eps, momentum;
};

__global__ void finish_statistics(const double* sums, int channels, bool any, Finish f, float* mean,
                                  float* inverse_std, float* running_mean, float* running_var) {
  const int c = channel_of_thread();
  if (c >= channels) return;
  const double m = any ? sums[c] : 0, squares = any ? sums[channels + c] : 0;
  mean[c] = static_cast<float>(m);
  inverse_std[c] = static_cast<float>(1 / sqrt(squares * f.biased + f.eps));
  if (any && running_mean != nullptr)
    running_mean[c] = static_cast<float>((1 - f.momentum) * running_mean[c] + f.momentum * m);
  if (f.unbiased > 0 && running_var != nullptr)
    running_var[c] =
        static_cast<float>((1 - f.momentum) * running_var[c] + f.momentum * (squares * f.unbiased));
}

__global__ void from_running(const float* running_mean, const float* running_var, double eps,
                             int channels, float* mean, float* inverse_std) {
  const int c = channel_of_thread();
  if (c >= channels) return;
  mean[c] = running_mean[c];
  inverse_std[c] = static_cast<float>(1 / sqrt(running_var[c] + eps));
}

__global__ void backward_parameters(const double* sums, int channels, bool add, float* dgamma,
                                    float* dbeta) {
  const int c = channel_of_thread();
  if (c >= channels) return;
  const float gamma = static_cast<float>(sums[channels + c]), beta = static_cast<float>(sums[c]);
  dgamma[c] = add ? dgamma[c] + gamma : gamma;
  dbeta[c] = add ? dbeta[c] + beta : beta;
}

Grid channel_grid(std::int64_t channels) {
  return {static_cast<unsigned>(divide_up(channels, kThreads))};
}

}  // namespace

void batch_norm_finish_statistics(KernelContext& context, TensorView sums, std::int64_t rows,
                                  double eps, double momentum, TensorView mean,
                                  TensorView inverse_std, TensorView running_mean,
                                  TensorView running_var) {
  const Finish finish{rows > 0 ? 1 / static_cast<double>(rows) : 0,
                      rows > 1 ? 1 / static_cast<double>(rows - 1) : 0, eps, momentum};
  launch("batch_norm_finish_statistics", finish_statistics, channel_grid(mean.count()), kThreads, 0,
         context.stream, sums.as<double>(), static_cast<int>(mean.count()), rows > 0, finish,
         mean.as<float>(), inverse_std.as<float>(), running_mean.as<float>(),
         running_var.as<float>());
}

void batch_norm_from_running(KernelContext& context, TensorView running_mean,
                             TensorView running_var, double eps, TensorView mean,
                             TensorView inverse_std) {
  launch("batch_norm_from_running", from_running, channel_grid(mean.count()), kThreads, 0,
         context.stream, running_mean.as<float>(), running_var.as<float>(), eps,
         static_cast<int>(mean.count()), mean.as<float>(), inverse_std.as<float>());
}

void batch_norm_backward_parameters(KernelContext& context, TensorView sums, TensorView dgamma,
                                    TensorView dbeta, Write write) {
  launch("batch_norm_backward_parameters", backward_parameters, channel_grid(dgamma.count()),
         kThreads, 0, context.stream, sums.as<double>(), static_cast<int>(dgamma.count()),
         write == Write::kAdd, dgamma.as<float>(), dbeta.as<float>());
}

void batch_norm_normalize(KernelContext& context, TensorView x, std::int64_t rows,
                          std::int64_t channels, TensorView mean, TensorView inverse_std,
                          TensorView gamma, TensorView beta, TensorView residual, bool relu,
                          TensorView y) {
  if (rows == 0) return;
  with_storage(x.dtype, [&]<class T>(T) {
    with_width<T>(
        channels, {x.data, residual.data, y.data}, [&]<int W>(std::integral_constant<int, W>) {
          const RowBlocks blocks = blocks_of(rows, channels, W);
          launch("batch_norm_normalize", normalize<T, W>, blocks.grid(), kRowThreads, 0,
                 context.stream, x.as<T>(), mean.as<float>(), inverse_std.as<float>(),
                 gamma.as<float>(), beta.as<float>(), residual.as<T>(), relu, blocks, y.as<T>());
        });
  });
}

void batch_norm_backward_data(KernelContext& context, TensorView x, std::int64_t rows,
                              std::int64_t channels, TensorView y, TensorView dy, TensorView mean,
                              TensorView inverse_std, TensorView gamma, TensorView sums,
                              std::int64_t group_rows, TensorView dx, Write write) {
  if (rows == 0) return;
  with_storage(x.dtype, [&]<class T>(T) {
    with_width<T>(
        channels, {x.data, y.data, dy.data, dx.data}, [&]<int W>(std::integral_constant<int, W>) {
          const RowBlocks blocks = blocks_of(rows, channels, W);
          launch("batch_norm_backward_data", backward_data<T, W>, blocks.grid(), kRowThreads, 0,
                 context.stream, x.as<T>(), y.as<T>(), dy.as<T>(), mean.as<float>(),
                 inverse_std.as<float>(), gamma.as<float>(), sums.as<double>(),
                 1 / static_cast<double>(group_rows), write == Write::kAdd, blocks, dx.as<T>());
        });
  });
}

}  // namespace engine::ops::cuda
