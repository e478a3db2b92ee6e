// Checks and dispatch of batch normalisation; the phases that touch only [channels] are here
// themselves.
#include "engine/ops/norm/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/core/cuda.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/norm/batch_norm_cpu.h"
#include "engine/ops/norm/batch_norm_cuda.h"
#include "engine/ops/norm/batch_norm_reference.h"

namespace engine::ops {
namespace {

// What x, the operands shaped as x, and those of [channels] agree on.
struct Extents {
  std::int64_t rows, channels;
};

Extents check_x(std::string_view kernel, const TensorView& x) {
  check_floating(kernel, "x", x);
  const int rank = x.shape.rank();
  if (rank < 2 || x.shape[rank - 1] < 1) {
    throw ShapeError(std::string(kernel) + ": x has the shape " + x.shape.to_string() +
                     ", expected [rows..., channels >= 1]");
  }
  return {x.count() / x.shape[rank - 1], x.shape[rank - 1]};
}

void check_channels(std::string_view kernel, std::string_view operand, const TensorView& view,
                    DType dtype, std::int64_t channels) {
  check_dtype(kernel, operand, view, dtype);
  check_shape(kernel, operand, view, {channels});
}

// Of what is [channels].
DType channel_dtype(const KernelContext& context, const TensorView& x) {
  return on_cuda(context) ? DType::kF32 : x.dtype;
}

void check_sums(std::string_view kernel, const TensorView& sums, std::int64_t channels) {
  check_dtype(kernel, "sums", sums, DType::kF64);
  check_shape(kernel, "sums", sums, {2, channels});
}

void check_scratch(std::string_view kernel, const KernelContext& context, std::int64_t rows,
                   std::int64_t channels, DType dtype) {
  check_context(kernel, context);
  const int threads = on_cuda(context) ? 0 : context.threads->threads();
  check_context(kernel, context,
                batch_norm_scratch_bytes(rows, channels, dtype, threads, context.device.kind));
}

float* scratch_floats(const KernelContext& context) {
  return reinterpret_cast<float*>(context.scratch.data());
}

template <class T>
void finish_statistics(const double* sums, std::int64_t channels, std::int64_t rows, double eps,
                       double momentum, T* mean, T* inverse_std, T* running_mean, T* running_var) {
  const double biased = 1.0 / static_cast<double>(std::max<std::int64_t>(rows, 1));
  const double unbiased = rows > 1 ? 1.0 / static_cast<double>(rows - 1) : 0;
  for (std::int64_t c = 0; c < channels; ++c) {
    const double m = rows > 0 ? sums[c] : 0, squares = rows > 0 ? sums[channels + c] : 0;
    mean[c] = static_cast<T>(m);
    inverse_std[c] = static_cast<T>(1 / std::sqrt(squares * biased + eps));
    if (rows == 0) continue;
    if (running_mean != nullptr)
      running_mean[c] = static_cast<T>((1 - momentum) * running_mean[c] + momentum * m);
    if (running_var != nullptr && rows > 1) {
      running_var[c] =
          static_cast<T>((1 - momentum) * running_var[c] + momentum * (squares * unbiased));
    }
  }
}

template <class T>
void from_running(const T* running_mean, const T* running_var, double eps, std::int64_t channels,
                  T* mean, T* inverse_std) {
  for (std::int64_t c = 0; c < channels; ++c) {
    mean[c] = running_mean[c];
    inverse_std[c] = static_cast<T>(1 / std::sqrt(running_var[c] + eps));
  }
}

template <class T>
void backward_parameters(const double* sums, std::int64_t channels, T* dgamma, T* dbeta,
                         Write write) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const T gamma = static_cast<T>(sums[channels + c]), beta = static_cast<T>(sums[c]);
    dgamma[c] = write == Write::kAdd ? dgamma[c] + gamma : gamma;
    dbeta[c] = write == Write::kAdd ? dbeta[c] + beta : beta;
  }
}

}  // namespace

std::size_t batch_norm_scratch_bytes([[maybe_unused]] std::int64_t rows, std::int64_t channels,
                                     DType dtype, int threads,
                                     [[maybe_unused]] Device::Kind device) {
  if constexpr (engine::cuda::kBuilt) {
    if (device == Device::Kind::kCuda) return cuda::batch_norm_scratch_bytes(rows, channels, dtype);
  }
  if (dtype != DType::kF32) return 0;
  return static_cast<std::size_t>(
             isa_table_of_batch_norm_table().scratch_floats(channels, threads)) *
         sizeof(float);
}

void batch_norm_statistics(KernelContext& context, TensorView x, TensorView sums) {
  constexpr std::string_view kName = "batch_norm_statistics";
  const auto [rows, channels] = check_x(kName, x);
  check_sums(kName, sums, channels);
  check_scratch(kName, context, rows, channels, x.dtype);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context)) return cuda::batch_norm_statistics(context, x, rows, channels, sums);
  }
  if (x.dtype == DType::kF32) {
    isa_table_of_batch_norm_table().statistics(x.as<float>(), rows, channels, sums.as<double>(),
                                               *context.threads, scratch_floats(context));
  } else {
    reference::batch_norm_statistics(x.as<double>(), rows, channels, sums.as<double>());
  }
}

void batch_norm_finish_statistics(KernelContext& context, TensorView sums, std::int64_t rows,
                                  double eps, double momentum, TensorView mean,
                                  TensorView inverse_std, TensorView running_mean,
                                  TensorView running_var) {
  constexpr std::string_view kName = "batch_norm_finish_statistics";
  const std::int64_t channels = mean.count();
  check_sums(kName, sums, channels);
  check_floating(kName, "mean", mean);
  check_like(kName, "inverse_std", inverse_std, mean);
  if (running_mean) check_channels(kName, "running_mean", running_mean, mean.dtype, channels);
  if (running_var) check_channels(kName, "running_var", running_var, mean.dtype, channels);
  require(rows >= 0, "batch_norm_finish_statistics: rows >= 0");
  check_context(kName, context);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context))
      return cuda::batch_norm_finish_statistics(context, sums, rows, eps, momentum, mean,
                                                inverse_std, running_mean, running_var);
  }
  if (mean.dtype == DType::kF32) {
    finish_statistics(sums.as<double>(), channels, rows, eps, momentum, mean.as<float>(),
                      inverse_std.as<float>(), running_mean.as<float>(), running_var.as<float>());
  } else {
    finish_statistics(sums.as<double>(), channels, rows, eps, momentum, mean.as<double>(),
                      inverse_std.as<double>(), running_mean.as<double>(),
                      running_var.as<double>());
  }
}

void batch_norm_from_running(KernelContext& context, TensorView running_mean,
                             TensorView running_var, double eps, TensorView mean,
                             TensorView inverse_std) {
  constexpr std::string_view kName = "batch_norm_from_running";
  check_floating(kName, "running_mean", running_mean);
  check_like(kName, "running_var", running_var, running_mean);
  check_like(kName, "mean", mean, running_mean);
  check_like(kName, "inverse_std", inverse_std, running_mean);
  check_context(kName, context);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context))
      return cuda::batch_norm_from_running(context, running_mean, running_var, eps, mean,
                                           inverse_std);
  }
  if (mean.dtype == DType::kF32) {
    from_running(running_mean.as<float>(), running_var.as<float>(), eps, mean.count(),
                 mean.as<float>(), inverse_std.as<float>());
  } else {
    from_running(running_mean.as<double>(), running_var.as<double>(), eps, mean.count(),
                 mean.as<double>(), inverse_std.as<double>());
  }
}

void batch_norm_normalize(KernelContext& context, TensorView x, TensorView mean,
                          TensorView inverse_std, TensorView gamma, TensorView beta,
                          TensorView residual, bool relu, TensorView y) {
  constexpr std::string_view kName = "batch_norm_normalize";
  const auto [rows, channels] = check_x(kName, x);
  check_channels(kName, "mean", mean, channel_dtype(context, x), channels);
  check_channels(kName, "inverse_std", inverse_std, channel_dtype(context, x), channels);
  check_channels(kName, "gamma", gamma, channel_dtype(context, x), channels);
  check_channels(kName, "beta", beta, channel_dtype(context, x), channels);
  if (residual) check_like(kName, "residual", residual, x);
  check_like(kName, "y", y, x);
  check_scratch(kName, context, rows, channels, x.dtype);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context))
      return cuda::batch_norm_normalize(context, x, rows, channels, mean, inverse_std, gamma, beta,
                                        residual, relu, y);
  }
  if (x.dtype == DType::kF32) {
    isa_table_of_batch_norm_table().normalize(
        x.as<float>(), mean.as<float>(), inverse_std.as<float>(), gamma.as<float>(),
        beta.as<float>(), residual.as<float>(), relu, rows, channels, y.as<float>(),
        *context.threads, scratch_floats(context));
  } else {
    reference::batch_norm_normalize(x.as<double>(), mean.as<double>(), inverse_std.as<double>(),
                                    gamma.as<double>(), beta.as<double>(), residual.as<double>(),
                                    relu, rows, channels, y.as<double>());
  }
}

void batch_norm_backward_sums(KernelContext& context, TensorView x, TensorView y, bool relu,
                              TensorView dy, TensorView mean, TensorView inverse_std,
                              TensorView sums, TensorView dresidual, Write write_residual) {
  constexpr std::string_view kName = "batch_norm_backward_sums";
  const auto [rows, channels] = check_x(kName, x);
  if (relu) check_like(kName, "y", y, x);
  check_like(kName, "dy", dy, x);
  check_channels(kName, "mean", mean, channel_dtype(context, x), channels);
  check_channels(kName, "inverse_std", inverse_std, channel_dtype(context, x), channels);
  check_sums(kName, sums, channels);
  if (dresidual) check_like(kName, "dresidual", dresidual, x);
  check_scratch(kName, context, rows, channels, x.dtype);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context))
      return cuda::batch_norm_backward_sums(context, x, rows, channels, relu ? y : TensorView{}, dy,
                                            mean, inverse_std, sums, dresidual, write_residual);
  }
  if (x.dtype == DType::kF32) {
    isa_table_of_batch_norm_table().backward_sums(
        x.as<float>(), relu ? y.as<float>() : nullptr, dy.as<float>(), mean.as<float>(),
        inverse_std.as<float>(), rows, channels, sums.as<double>(), dresidual.as<float>(),
        write_residual == Write::kAdd, *context.threads, scratch_floats(context));
  } else {
    reference::batch_norm_backward_sums(x.as<double>(), relu ? y.as<double>() : nullptr, relu,
                                        dy.as<double>(), mean.as<double>(),
                                        inverse_std.as<double>(), rows, channels, sums.as<double>(),
                                        dresidual.as<double>(), write_residual);
  }
}

void batch_norm_backward_parameters(KernelContext& context, TensorView sums, TensorView dgamma,
                                    TensorView dbeta, Write write) {
  constexpr std::string_view kName = "batch_norm_backward_parameters";
  check_floating(kName, "dgamma", dgamma);
  check_like(kName, "dbeta", dbeta, dgamma);
  check_sums(kName, sums, dgamma.count());
  check_context(kName, context);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context))
      return cuda::batch_norm_backward_parameters(context, sums, dgamma, dbeta, write);
  }
  if (dgamma.dtype == DType::kF32) {
    backward_parameters(sums.as<double>(), dgamma.count(), dgamma.as<float>(), dbeta.as<float>(),
                        write);
  } else {
    backward_parameters(sums.as<double>(), dgamma.count(), dgamma.as<double>(), dbeta.as<double>(),
                        write);
  }
}

void batch_norm_backward_data(KernelContext& context, TensorView x, TensorView y, bool relu,
                              TensorView dy, TensorView mean, TensorView inverse_std,
                              TensorView gamma, TensorView sums, std::int64_t rows, TensorView dx,
                              Write write) {
  constexpr std::string_view kName = "batch_norm_backward_data";
  const auto [own_rows, channels] = check_x(kName, x);
  if (relu) check_like(kName, "y", y, x);
  check_like(kName, "dy", dy, x);
  check_channels(kName, "mean", mean, channel_dtype(context, x), channels);
  check_channels(kName, "inverse_std", inverse_std, channel_dtype(context, x), channels);
  check_channels(kName, "gamma", gamma, channel_dtype(context, x), channels);
  check_sums(kName, sums, channels);
  check_like(kName, "dx", dx, x);
  check_scratch(kName, context, own_rows, channels, x.dtype);
  require(rows >= own_rows, "batch_norm_backward_data: the group has at least the rows of x");
  if (own_rows == 0) return;
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context))
      return cuda::batch_norm_backward_data(context, x, own_rows, channels, relu ? y : TensorView{},
                                            dy, mean, inverse_std, gamma, sums, rows, dx, write);
  }
  if (x.dtype == DType::kF32) {
    isa_table_of_batch_norm_table().backward_data(
        x.as<float>(), relu ? y.as<float>() : nullptr, dy.as<float>(), mean.as<float>(),
        inverse_std.as<float>(), gamma.as<float>(), sums.as<double>(), rows, own_rows, channels,
        dx.as<float>(), write == Write::kAdd, *context.threads, scratch_floats(context));
  } else {
    reference::batch_norm_backward_data(
        x.as<double>(), relu ? y.as<double>() : nullptr, relu, dy.as<double>(), mean.as<double>(),
        inverse_std.as<double>(), gamma.as<double>(), sums.as<double>(), rows, own_rows, channels,
        dx.as<double>(), write);
  }
}

}  // namespace engine::ops
