// Channel shuffles: by hand, there and back, and shapes that do not fit.
#include "engine/ops/pool/shuffle_channels.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_runs.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

TEST(ShuffleChannels, TakesAChannelOfEachGroupInTurn) {
  Context c(1, 0);
  Operand<float> x({2, 6}, 0), y({2, 6}, 0);
  x.values = {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15};
  shuffle_channels(c.context, {.groups = 2, .x = x.view(), .y = y.view()});
  EXPECT_EQ(y.values, (std::vector<float>{0, 3, 1, 4, 2, 5, 10, 13, 11, 14, 12, 15}));
  shuffle_channels(c.context, {.groups = 2, .x = x.view(), .y = y.view(), .write = Write::kAdd});
  EXPECT_EQ(y.values, (std::vector<float>{0, 6, 2, 8, 4, 10, 20, 26, 22, 28, 24, 30}));
}

TEST(ShuffleChannels, IsUndoneByTheOtherNumberOfGroups) {
  for (int threads = 1; threads <= 3; ++threads)
    for (const Shape& shape : {Shape{0, 3, 3, 12}, Shape{3, 5, 7, 24}, Shape{4, 60}})
      for (const std::int64_t groups : {1, 2, 3, 4, 12}) {
        SCOPED_TRACE(shape.to_string() + " " + std::to_string(groups));
        const Operand<float> x = random_operand(shape, 1);
        const Given operands[] = {x, gemm_test::nan_operand(shape), gemm_test::nan_operand(shape)};
        const auto [found, wide] = run_both(
            threads, operands,
            [&](KernelContext& c, TensorView from, TensorView between, TensorView to) {
              shuffle_channels(c, {.groups = groups, .x = from, .y = between});
              shuffle_channels(c, {.groups = shape.dims().back() / groups, .x = between, .y = to});
            });
        EXPECT_EQ(found[2], x.values);
        EXPECT_EQ(far_apart(wide[2], x.values, 0, 0), "");
        if (groups > 1 && groups < shape.dims().back() && !x.values.empty()) {
          EXPECT_NE(found[1], x.values);
        }
      }
}

TEST(ShuffleChannels, RefusesShapesThatDoNotFit) {
  Context c(1, 0);
  Operand<float> x({1, 2, 2, 6}, 0), other({1, 2, 2, 4}, 0), y({1, 2, 2, 6}, 0);
  EXPECT_THROW(shuffle_channels(c.context, {.groups = 2, .x = x.view(), .y = other.view()}),
               ShapeError);
  EXPECT_THROW(shuffle_channels(c.context, {.groups = 4, .x = x.view(), .y = y.view()}),
               ShapeError);
  EXPECT_THROW(shuffle_channels(c.context, {.groups = 0, .x = x.view(), .y = y.view()}),
               ShapeError);
}

}  // namespace
}  // namespace engine::ops
