// Batch normalization of activations stored in bf16: the numbers of f32, rounded where stored.
#include <gtest/gtest.h>

#include <functional>

#include "tests/engine/ops/common/stored_test_support.h"
#include "tests/engine/ops/norm/norm_cases.h"

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
    const Shape shape{rows, channels};
    auto c = batch_norm_of(shape, relu, residual, write, random_operand)
                 .as([](const Operand<float>&) { return Operand<T>(); }, std::identity(),
                     std::identity());
    c.eps = 1e-2;
    c.x = stored_operand<T>(shape, 1);
    c.residual = stored_operand<T>(shape, 2);
    c.dy = stored_operand<T>(shape, 3);
    c.y = stored_output<T>(shape, Write::kOverwrite);
    c.dx = c.dresidual = stored_output<T>(shape, write);
    Context context(threads, batch_norm_scratch_bytes(rows, channels, DTypeOf<T>::value, threads));
    c.find_sums(context.context);
    c.finish_statistics(context.context);
    c.normalize(context.context);
    const std::vector<float> y = floats_of(c.y);
    c.y = stored_operand<T>(shape, 4);
    c.find_backward_sums(context.context);
    c.backward_data(context.context, rows);
    const auto narrow = [](const Operand<double>& from) {
      return std::vector<float>(from.values.begin(), from.values.end());
    };
    std::vector<std::vector<float>> results{y, floats_of(c.dx)};
    if (residual) results.push_back(floats_of(c.dresidual));
    for (const auto& more :
         {narrow(c.sums), c.mean.values, c.inverse_std.values, narrow(c.backward_sums)})
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
