// Channel padding: PyTorch's numbers, both dtypes against each other at odd sizes, and shapes that
// do not fit.
#include "engine/ops/pool/pad_channels.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_runs.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

// torch.nn.functional.pad(x, (0, 0, 0, 0, 1, 2)) of x [1, 2, 1, 2], and its gradient of weights 1,
// 2, 3 ...
TEST(PadChannels, IsPyTorchs) {
  Context c(1, 0);
  Operand<float> x = operand_of<float>({1, 1, 2, 2}, {1, 2, 3, 4}),
                 y = gemm_test::nan_operand({1, 1, 2, 5});
  pad_channels_forward(c.context, {.before = 1, .x = x.view(), .y = y.view()});
  EXPECT_EQ(y.values, (std::vector<float>{0, 1, 2, 0, 0, 0, 3, 4, 0, 0}));
  Operand<float> dy = operand_of<float>({1, 1, 2, 5}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}),
                 dx({1, 1, 2, 2}, 1);
  pad_channels_backward(c.context,
                        {.before = 1, .dy = dy.view(), .dx = dx.view(), .write = Write::kAdd});
  EXPECT_EQ(dx.values, (std::vector<float>{3, 4, 8, 9}));
}

// Against a naive loop over the elements of y.
TEST(PadChannels, AgreesWithANaiveLoopAtOddSizes) {
  for (int threads = 1; threads <= 3; ++threads) {
    for (const Shape& in :
         {Shape{0, 3, 3, 4}, Shape{1, 1, 1, 1}, Shape{3, 5, 7, 17}, Shape{2, 4, 4, 64}}) {
      for (const std::int64_t before : {0, 1, 8})
        for (const std::int64_t after : {0, 5})
          for (const Write write : {Write::kOverwrite, Write::kAdd}) {
            SCOPED_TRACE(in.to_string() + " " + std::to_string(before) + " " +
                         std::to_string(after));
            const std::int64_t channels = in[3], padded = before + channels + after;
            const Shape out{in[0], in[1], in[2], padded};
            Operand<float> x = random_operand(in, 1), y = gemm_test::nan_operand(out),
                           dy = random_operand(out, 2), dx = output(in, write);
            std::vector<float> expected(dy.values.size(), 0), expected_gradient = dx.values;
            for (std::size_t i = 0; i < expected.size(); ++i) {
              const auto row = static_cast<std::int64_t>(i) / padded,
                         channel = static_cast<std::int64_t>(i) % padded - before;
              if (channel < 0 || channel >= channels) continue;
              const auto from = static_cast<std::size_t>(row * channels + channel);
              expected[i] = x.values[from];
              expected_gradient[from] =
                  dy.values[i] + (write == Write::kAdd ? expected_gradient[from] : 0);
            }
            const Given operands[] = {x, dy, y, dx};
            const auto [found, wide] =
                run_both(threads, operands,
                         [&](KernelContext& c, TensorView from, TensorView slopes, TensorView to,
                             TensorView gradient) {
                           pad_channels_forward(c, {before, from, to});
                           pad_channels_backward(c, {before, slopes, gradient, write});
                         });
            EXPECT_EQ(found[2], expected);
            EXPECT_EQ(far_apart(wide[2], expected, 0, 0), "");
            EXPECT_EQ(found[3], expected_gradient);
            EXPECT_EQ(far_apart(wide[3], expected_gradient, 0, 1e-6), "");
          }
    }
  }
}

TEST(PadChannels, RefusesShapesThatDoNotFit) {
  Context c(1, 0);
  Operand<float> x({1, 2, 2, 3}, 0), narrow({1, 2, 2, 4}, 0), other({1, 2, 3, 8}, 0),
      flat({4, 8}, 0);
  EXPECT_THROW(pad_channels_forward(c.context, {.before = 2, .x = x.view(), .y = narrow.view()}),
               ShapeError);
  EXPECT_THROW(pad_channels_forward(c.context, {.before = 0, .x = x.view(), .y = other.view()}),
               ShapeError);
  EXPECT_THROW(pad_channels_forward(c.context, {.before = 0, .x = x.view(), .y = flat.view()}),
               ShapeError);
  EXPECT_THROW(pad_channels_backward(
                   c.context,
                   {.before = -1, .dy = narrow.view(), .dx = x.view(), .write = Write::kOverwrite}),
               ShapeError);
}

}  // namespace
}  // namespace engine::ops
