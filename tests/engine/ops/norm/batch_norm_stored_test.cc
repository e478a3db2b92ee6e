// Batch normalization of activations stored in bf16: the numbers of f32, rounded where stored.
#include <gtest/gtest.h>

#include "engine/ops/norm/batch_norm.h"
#include "tests/engine/ops/common/stored_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

struct NormCase {
  std::int64_t rows, channels;
  int threads;
  bool relu, residual;
  Write write;

  // y, dresidual, dx; then sums, mean, inverse_std, gradient sums. Backward reads the given y.
  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    const Shape shape{rows, channels}, each{channels};
    auto x = stored_operand<T>(shape, 1), add = stored_operand<T>(shape, 2),
         dy = stored_operand<T>(shape, 3), out = stored_operand<T>(shape, 4),
         y = stored_output<T>(shape, Write::kOverwrite), dx = stored_output<T>(shape, write),
         dresidual = stored_output<T>(shape, write);
    auto gamma = random_operand(each, 5), beta = random_operand(each, 6), mean = gamma,
         inverse_std = gamma;
    Operand<double> sums({2, channels}, 0), gradient_sums({2, channels}, 0);
    Context c(threads, batch_norm_scratch_bytes(rows, channels, DTypeOf<T>::value, threads));
    batch_norm_statistics(c.context, x.view(), sums.view());
    batch_norm_finish_statistics(c.context, {.sums = sums.view(),
                                             .rows = rows,
                                             .eps = 1e-2,
                                             .momentum = 0.1,
                                             .mean = mean.view(),
                                             .inverse_std = inverse_std.view()});
    batch_norm_normalize(c.context, {.x = x.view(),
                                     .mean = mean.view(),
                                     .inverse_std = inverse_std.view(),
                                     .gamma = gamma.view(),
                                     .beta = beta.view(),
                                     .residual = residual ? add.view() : TensorView{},
                                     .relu = relu,
                                     .y = y.view()});
    batch_norm_backward_sums(c.context, {.x = x.view(),
                                         .y = relu ? out.view() : TensorView{},
                                         .dy = dy.view(),
                                         .mean = mean.view(),
                                         .inverse_std = inverse_std.view(),
                                         .sums = gradient_sums.view(),
                                         .dresidual = residual ? dresidual.view() : TensorView{},
                                         .write_residual = write});
    batch_norm_backward_data(c.context, {.x = x.view(),
                                         .y = relu ? out.view() : TensorView{},
                                         .dy = dy.view(),
                                         .mean = mean.view(),
                                         .inverse_std = inverse_std.view(),
                                         .gamma = gamma.view(),
                                         .sums = gradient_sums.view(),
                                         .rows = rows,
                                         .dx = dx.view(),
                                         .write = write});
    const auto narrow = [](const Operand<double>& from) {
      return std::vector<float>(from.values.begin(), from.values.end());
    };
    std::vector<std::vector<float>> results{floats_of(y), floats_of(dx)};
    if (residual) results.push_back(floats_of(dresidual));
    for (const auto& more : {narrow(sums), mean.values, inverse_std.values, narrow(gradient_sums)})
      results.push_back(more);
    return results;
  }
};

class BatchNormStored : public Bf16Test {};

TEST_F(BatchNormStored, IsThatOfFloatsRounded) {
  for (const std::int64_t channels : kStoredChannels)
    for (const std::int64_t rows : {1, 2, 9, 300, 1037})
      for (const bool relu : {false, true})
        for (const bool residual : {false, true})
          for (const Write write : {Write::kOverwrite, Write::kAdd}) {
            const NormCase c{rows, channels, relu ? 2 : 1, relu, residual, write};
            SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(channels) +
                         (relu ? ", relu" : "") + (residual ? ", residual" : "") +
                         (write == Write::kAdd ? ", add" : ""));
            expect_same_rounded(c, residual ? 3 : 2, 1e-4);
          }
}

TEST_F(BatchNormStored, IsRefusedWhereTheCpuHasNoBf16) {
  const gemm_test::ScopedIsa scope(CpuIsa::kAvx2);
  Operand<bf16> x({2, 3}, bf16{});
  Operand<double> sums({2, 3}, 0);
  Context c(1, 4096);
  EXPECT_THROW(batch_norm_statistics(c.context, x.view(), sums.view()), ModelError);
}

}  // namespace
}  // namespace engine::ops
