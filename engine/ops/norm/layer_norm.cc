// Layer normalisation: checks and dispatch.
#include "engine/ops/norm/layer_norm.h"

#include <string>

#include "engine/core/cuda.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/norm/layer_norm_cpu.h"
#include "engine/ops/norm/layer_norm_cuda.h"
#include "engine/ops/norm/layer_norm_reference.h"

namespace engine::ops {
namespace {

struct Rows {
  std::int64_t rows, width;
};

Rows check_rows(const char* kernel, const KernelContext& context, const TensorView& x) {
  check_floating(kernel, "x", x);
  if (x.shape.rank() < 2)
    throw ShapeError(std::string(kernel) + ": x has the shape " + x.shape.to_string() +
                     ", expected [rows..., width]");
  const std::int64_t width = x.shape[x.shape.rank() - 1];
  check_context(kernel, context, layer_norm_scratch_bytes(width, context.device.kind));
  return {width > 0 ? x.count() / width : 0, width};
}

void check_parameter(const char* kernel, const char* operand, const TensorView& view,
                     const TensorView& x, const Rows& sizes) {
  check_dtype(kernel, operand, view, wide_dtype(x.dtype));
  check_shape(kernel, operand, view, {sizes.width});
}

void check_statistics(const char* kernel, const TensorView& statistics, const TensorView& x,
                      const Rows& sizes) {
  check_dtype(kernel, "statistics", statistics, wide_dtype(x.dtype));
  check_shape(kernel, "statistics", statistics, {2, sizes.rows});
}

template <class T>
const T* second_row(const TensorView& statistics) {
  return statistics.as<T>() + statistics.shape[1];
}

}  // namespace

std::size_t layer_norm_scratch_bytes([[maybe_unused]] std::int64_t width,
                                     [[maybe_unused]] Device::Kind device) {
  if constexpr (engine::cuda::kBuilt) {
    if (device == Device::Kind::kCuda) return cuda::layer_norm_scratch_bytes(width);
  }
  return 0;
}

void layer_norm_forward(KernelContext& context, TensorView x, TensorView gamma, TensorView beta,
                        double eps, TensorView y, TensorView statistics) {
  constexpr const char* kName = "layer_norm_forward";
  const Rows s = check_rows(kName, context, x);
  check_parameter(kName, "gamma", gamma, x, s);
  check_parameter(kName, "beta", beta, x, s);
  check_like(kName, "y", y, x);
  if (statistics) check_statistics(kName, statistics, x, s);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context))
      return cuda::layer_norm_forward(context, x, gamma, beta, eps, y, statistics);
  }
  if (x.dtype == DType::kF64) {
    double* mean = statistics.as<double>();
    return reference::layer_norm_forward(x.as<double>(), s.rows, s.width, gamma.as<double>(),
                                         beta.as<double>(), eps, y.as<double>(), mean,
                                         mean ? mean + s.rows : nullptr);
  }
  float* mean = statistics.as<float>();
  isa_table_of_layer_norm_table().forward(x.as<float>(), s.rows, s.width, gamma.as<float>(),
                                          beta.as<float>(), eps, y.as<float>(), mean,
                                          mean ? mean + s.rows : nullptr, *context.threads);
}

void layer_norm_backward_data(KernelContext& context, TensorView x, TensorView gamma,
                              TensorView statistics, TensorView dy, TensorView dx, Write write) {
  constexpr const char* kName = "layer_norm_backward_data";
  const Rows s = check_rows(kName, context, x);
  check_parameter(kName, "gamma", gamma, x, s);
  check_statistics(kName, statistics, x, s);
  check_like(kName, "dy", dy, x);
  check_like(kName, "dx", dx, x);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context))
      return cuda::layer_norm_backward_data(context, x, gamma, statistics, dy, dx, write);
  }
  if (x.dtype == DType::kF64)
    return reference::layer_norm_backward_data(
        x.as<double>(), s.rows, s.width, gamma.as<double>(), statistics.as<double>(),
        second_row<double>(statistics), dy.as<double>(), dx.as<double>(), write);
  isa_table_of_layer_norm_table().backward_data(
      x.as<float>(), s.rows, s.width, gamma.as<float>(), statistics.as<float>(),
      second_row<float>(statistics), dy.as<float>(), dx.as<float>(), write == Write::kAdd,
      *context.threads);
}

void layer_norm_backward_parameters(KernelContext& context, TensorView x, TensorView statistics,
                                    TensorView dy, TensorView dgamma, TensorView dbeta,
                                    Write write) {
  constexpr const char* kName = "layer_norm_backward_parameters";
  const Rows s = check_rows(kName, context, x);
  check_statistics(kName, statistics, x, s);
  check_like(kName, "dy", dy, x);
  check_parameter(kName, "dgamma", dgamma, x, s);
  check_parameter(kName, "dbeta", dbeta, x, s);
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context))
      return cuda::layer_norm_backward_parameters(context, x, statistics, dy, dgamma, dbeta, write);
  }
  if (x.dtype == DType::kF64)
    return reference::layer_norm_backward_parameters(
        x.as<double>(), s.rows, s.width, statistics.as<double>(), second_row<double>(statistics),
        dy.as<double>(), dgamma.as<double>(), dbeta.as<double>(), write);
  isa_table_of_layer_norm_table().backward_parameters(
      x.as<float>(), s.rows, s.width, statistics.as<float>(), second_row<float>(statistics),
      dy.as<float>(), dgamma.as<float>(), dbeta.as<float>(), write == Write::kAdd,
      *context.threads);
}

void layer_norm_backward(KernelContext& context, TensorView x, TensorView gamma,
                         TensorView statistics, TensorView dy, TensorView dgamma, TensorView dbeta,
                         Write parameter_write, TensorView dx, Write dx_write) {
  if constexpr (engine::cuda::kBuilt) {
    if (on_cuda(context)) {
      constexpr const char* kName = "layer_norm_backward";
      const Rows s = check_rows(kName, context, x);
      for (const TensorView* parameter : {&gamma, &dgamma, &dbeta})
        check_parameter(kName, "a parameter", *parameter, x, s);
      check_statistics(kName, statistics, x, s);
      check_like(kName, "dy", dy, x);
      check_like(kName, "dx", dx, x);
      return cuda::layer_norm_backward(context, x, gamma, statistics, dy, dgamma, dbeta,
                                       parameter_write, dx, dx_write);
    }
  }
  layer_norm_backward_parameters(context, x, statistics, dy, dgamma, dbeta, parameter_write);
  layer_norm_backward_data(context, x, gamma, statistics, dy, dx, dx_write);
}

}  // namespace engine::ops
