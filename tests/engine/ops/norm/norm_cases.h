// All operands of the calls of a normalization, wherever they are: numbers on the host in f32 or
// f64, what a storage keeps of them, and memory of a device.
#pragma once

#include <gtest/gtest.h>

#include <type_traits>

#include "engine/ops/norm/batch_norm.h"
#include "engine/ops/norm/group_norm.h"
#include "engine/ops/norm/layer_norm.h"
#include "tests/engine/ops/common/kernel_test_support.h"

namespace kernel_test {

inline constexpr double kNormEps = 1e-5;

// Layer normalization, or group normalization of `groups` groups. A: operands of activations, P: of
// parameters and statistics.
template <class A, class P = A>
struct SampleNorm {
  std::int64_t groups;  // 0: layer normalization
  A x, dy, y, dx;
  P gamma, beta, statistics, dgamma, dbeta;

  // The same operands elsewhere.
  template <class OfA, class OfP>
  auto as(OfA a, OfP p) const {
    return SampleNorm<std::remove_cvref_t<decltype(a(x))>, std::remove_cvref_t<decltype(p(gamma))>>{
        groups, a(x), a(dy), a(y), a(dx), p(gamma), p(beta), p(statistics), p(dgamma), p(dbeta)};
  }

  void forward(KernelContext& context) { forward(context, y.view(), statistics.view()); }
  void forward(KernelContext& context, const TensorView& to, const TensorView& kept) {
    if (groups == 0)
      engine::ops::layer_norm_forward(context,
                                      {x.view(), gamma.view(), beta.view(), kNormEps, to, kept});
    else
      engine::ops::group_norm_forward(
          context, {x.view(), gamma.view(), beta.view(), groups, kNormEps, to, kept});
  }
  // Everything in one call.
  void backward(KernelContext& context, Write write) { backward(context, write, dx.view()); }
  void backward(KernelContext& context, Write write, const TensorView& to) {
    if (groups == 0)
      engine::ops::layer_norm_backward(
          context, {x.view(), gamma.view(), statistics.view(), dy.view(), dgamma.view(),
                    dbeta.view(), write, to, write});
    else
      engine::ops::group_norm_backward(
          context, {x.view(), gamma.view(), statistics.view(), dy.view(), dgamma.view(),
                    dbeta.view(), write, to, write});
  }
  // The two parts of it that layer normalization also has alone.
  void backward_data(KernelContext& context, Write write, const TensorView& to) {
    engine::ops::layer_norm_backward_data(
        context, {x.view(), gamma.view(), statistics.view(), dy.view(), to, write});
  }
  void backward_parameters(KernelContext& context, Write write) {
    engine::ops::layer_norm_backward_parameters(
        context, {x.view(), statistics.view(), dy.view(), dgamma.view(), dbeta.view(), write});
  }
};

struct SampleNormSetting {
  Shape shape;
  std::int64_t groups = 0;
};

// Numbers far from mean 0.
inline SampleNorm<Operand<float>> sample_norm(const SampleNormSetting& setting, Write write) {
  const auto& [shape, groups] = setting;
  const std::int64_t width = shape[shape.rank() - 1];
  SampleNorm<Operand<float>> c;
  c.groups = groups;
  c.x = random_operand(shape, 1);
  for (float& value : c.x.values) value = value * 3 + 5;
  c.gamma = random_operand({width}, 2);
  c.beta = random_operand({width}, 3);
  c.dy = random_operand(shape, 4);
  c.y = gemm_test::nan_operand(shape);
  c.dx = output(shape, write);
  c.dgamma = c.dbeta = output({width}, write);
  c.statistics = gemm_test::nan_operand(groups == 0 ? Shape{2, shape.count() / width}
                                                    : Shape{2, shape[0], groups});
  return c;
}

// Batch normalization. A: operands of activations, P: of parameters and statistics, S: of sums.
template <class A, class P = A, class S = Operand<double>>
struct BatchNorm {
  bool relu = false, with_residual = false;
  Write write = Write::kOverwrite;
  double eps = 1e-5;
  A x, residual, dy, y, dx, dresidual;
  P gamma, beta, mean, inverse_std, running_mean, running_var, dgamma, dbeta;
  S sums, backward_sums;

  template <class OfA, class OfP, class OfS>
  auto as(OfA a, OfP p, OfS s) const {
    return BatchNorm<std::remove_cvref_t<decltype(a(x))>, std::remove_cvref_t<decltype(p(gamma))>,
                     std::remove_cvref_t<decltype(s(sums))>>{
        relu,      with_residual,  write,           eps,
        a(x),      a(residual),    a(dy),           a(y),
        a(dx),     a(dresidual),   p(gamma),        p(beta),
        p(mean),   p(inverse_std), p(running_mean), p(running_var),
        p(dgamma), p(dbeta),       s(sums),         s(backward_sums)};
  }

  std::int64_t rows() { return x.view().count() / gamma.view().count(); }
  TensorView mask() { return relu ? y.view() : TensorView{}; }

  void find_sums(KernelContext& context) {
    engine::ops::batch_norm_statistics(context, x.view(), sums.view());
  }
  void finish_statistics(KernelContext& context) {
    engine::ops::batch_norm_finish_statistics(
        context, {sums.view(), rows(), eps, 0.1, mean.view(), inverse_std.view(),
                  running_mean.view(), running_var.view()});
  }
  void from_running(KernelContext& context) {
    engine::ops::batch_norm_from_running(
        context, {running_mean.view(), running_var.view(), eps, mean.view(), inverse_std.view()});
  }
  void normalize(KernelContext& context) {
    engine::ops::batch_norm_normalize(
        context, {x.view(), mean.view(), inverse_std.view(), gamma.view(), beta.view(),
                  with_residual ? residual.view() : TensorView{}, relu, y.view()});
  }
  void find_backward_sums(KernelContext& context) {
    engine::ops::batch_norm_backward_sums(
        context, {x.view(), mask(), dy.view(), mean.view(), inverse_std.view(),
                  backward_sums.view(), with_residual ? dresidual.view() : TensorView{}, write});
  }
  void backward_parameters(KernelContext& context) {
    engine::ops::batch_norm_backward_parameters(
        context, {backward_sums.view(), dgamma.view(), dbeta.view(), write});
  }
  void backward_data(KernelContext& context, std::int64_t all_rows) {
    engine::ops::batch_norm_backward_data(
        context, {x.view(), mask(), dy.view(), mean.view(), inverse_std.view(), gamma.view(),
                  backward_sums.view(), all_rows, dx.view(), write});
  }
  // Every phase, one after the other.
  void run(KernelContext& context) {
    find_sums(context);
    finish_statistics(context);
    normalize(context);
    find_backward_sums(context);
    backward_parameters(context);
    backward_data(context, rows());
  }
};
using HostBatchNorm = BatchNorm<Operand<float>>;
using WideBatchNorm = BatchNorm<Operand<double>>;

// Activations by data(shape, seed).
template <class Data>
HostBatchNorm batch_norm_of(const Shape& shape, bool relu, bool with_residual, Write write,
                            Data data) {
  const std::int64_t channels = shape[shape.rank() - 1];
  HostBatchNorm c;
  c.relu = relu, c.with_residual = with_residual, c.write = write;
  c.x = data(shape, 1);
  c.residual = data(shape, 2);
  c.dy = data(shape, 3);
  c.y = gemm_test::nan_operand(shape);
  c.dx = c.dresidual = output(shape, write);
  c.gamma = random_operand({channels}, 5);
  c.beta = random_operand({channels}, 6);
  c.running_mean = c.running_var = random_operand({channels}, 7);
  for (float& value : c.running_var.values) value = value * value + 0.1f;
  c.mean = c.inverse_std = gemm_test::nan_operand({channels});
  c.dgamma = c.dbeta = output({channels}, write);
  c.sums = c.backward_sums = Operand<double>({2, channels}, NAN);
  return c;
}

// Numbers whose mean is not 0.
inline Operand<float> shifted_operand(const Shape& shape, std::uint32_t seed) {
  Operand<float> x = random_operand(shape, seed);
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] += static_cast<float>(i % 7) - 2;
  return x;
}

// A mean of 10^4 with a deviation of 0.01, and an outlier as first row: this leaves float32 about
// ten steps of variation, which sums must not lose.
inline Operand<float> canceling_operand(std::int64_t channels) {
  Operand<float> x = random_operand({20'000, channels}, 3);
  for (float& value : x.values) value = 1e4f + 0.01f * value;
  for (std::int64_t c = 0; c < channels; ++c) x.values[static_cast<std::size_t>(c)] = 1e4f + 0.5f;
  return x;
}

}  // namespace kernel_test
