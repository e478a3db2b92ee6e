// Losses of predicted numbers on a CUDA device against float64, for every storage: odd sizes, any
// alignment, gradients, NaN, and totals without labels.
#include "engine/ops/loss/regression_loss.h"

#include <array>

#include "engine/ops/loss/softmax_cross_entropy.h"
#include "tests/engine/ops/device/device_runs.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

constexpr RegressionLoss kKinds[] = {RegressionLoss::kSquared, RegressionLoss::kAbsolute,
                                     RegressionLoss::kHuber, RegressionLoss::kLogistic};

template <class T>
class RegressionLossCuda : public CudaTest {};
TYPED_TEST_SUITE(RegressionLossCuda, Storages);

TYPED_TEST(RegressionLossCuda, AgreesWithTheReference) {
  for (const Shape& shape : {Shape{0, 2}, Shape{1, 1}, Shape{37, 1}, Shape{257, 3}, Shape{70, 129}})
    for (const RegressionLoss kind : kKinds)
      for (const std::int64_t shift : {0, 1}) {
        SCOPED_TRACE(shape.to_string() + ", shifted by " + std::to_string(shift));
        const Shape rows{shape[0]};
        const Given operands[] = {random_operand(shape, 1),  state(random_operand(shape, 2)),
                                  state(nothing(rows)),      nothing(shape),
                                  state(nothing(rows)),      state(random_operand(rows, 3)),
                                  output(shape, Write::kAdd)};
        const auto [found, expected] = run_on_device<TypeParam>(
            operands,
            [&](KernelContext& c, TensorView prediction, TensorView target, TensorView loss,
                TensorView gradient, TensorView inferred, TensorView dloss, TensorView dx) {
              regression_loss_forward(c, {prediction, target, loss, gradient, kind});
              regression_loss_forward(
                  c, {.prediction = prediction, .target = target, .loss = inferred, .kind = kind});
              softmax_cross_entropy_backward(c, {gradient, dloss, dx, Write::kAdd});
            },
            shift);
        EXPECT_LE(relative_error(found[2], expected[2]), state_error<TypeParam>());
        EXPECT_EQ(found[4], found[2]);
        EXPECT_LE(relative_error(found[3], expected[3]), storage_error<TypeParam>());
        EXPECT_LE(relative_error(found[6], expected[6]), 2 * storage_error<TypeParam>());
      }
}

// More rows than the largest grid has threads.
TYPED_TEST(RegressionLossCuda, LoopsPastTheGrid) {
  const std::int64_t rows = 132 * 16 * 256 + 1000;
  const auto prediction =
      to_device<TypeParam>({rows, 1}, std::vector<float>(static_cast<std::size_t>(rows), 1.5f));
  using State = StateOf<TypeParam>;
  const auto count = static_cast<std::size_t>(rows);
  const auto target = to_device<State>({rows, 1}, std::vector<float>(count, 1.25f)),
             loss = to_device<State>({rows}, std::vector<float>(count, NAN));
  DeviceContext c;
  regression_loss_forward(
      c.context, {.prediction = prediction.view(), .target = target.view(), .loss = loss.view()});
  c.finish();
  EXPECT_EQ(loss.values(), std::vector<State>(count, 0.0625f));
}

// PyTorch's sign gives NaN for NaN as well.
TYPED_TEST(RegressionLossCuda, NanStaysNanInItsRowOnly) {
  for (const RegressionLoss kind : kKinds) {
    const auto prediction = to_device<TypeParam>({2, 2}, {NAN, 1, 2, 3}),
               gradient = to_device<TypeParam>({2, 2}, {9, 9, 9, 9});
    const auto target = to_device<StateOf<TypeParam>>({2, 2}, {0, 0, 2, 1}),
               loss = to_device<StateOf<TypeParam>>({2}, {9, 9});
    DeviceContext c;
    regression_loss_forward(c.context,
                            {prediction.view(), target.view(), loss.view(), gradient.view(), kind});
    c.finish();
    const auto slopes = as_floats(gradient.values());
    EXPECT_TRUE(std::isnan(loss.values()[0]) && std::isnan(slopes[0]));
    if (kind == RegressionLoss::kLogistic) continue;
    EXPECT_EQ(slopes[2], 0);  // equal numbers
    EXPECT_EQ(slopes[3], kind == RegressionLoss::kSquared ? 2 : 0.5f);
    EXPECT_EQ(loss.values()[1], kind == RegressionLoss::kSquared    ? 2
                                : kind == RegressionLoss::kAbsolute ? 1
                                                                    : 0.75f);
  }
}

using RegressionLossCudaOnce = CudaTest;

TYPED_TEST(RegressionLossCuda, OfLogitsNeitherOverflowsNorIncludesUnknownLabels) {
  const auto prediction = to_device<TypeParam>({2, 3}, {1e4f, -1e4f, 5, 1e4f, -1e4f, 5}),
             gradient = to_device<TypeParam>({2, 3}, {9, 9, 9, 9, 9, 9});
  using State = StateOf<TypeParam>;
  const auto target = to_device<State>({2, 3}, {1, 0, NAN, 0, 0.5f, NAN}),
             loss = to_device<State>({2}, {9, 9});
  const State large = as_floats(prediction.values())[0];
  DeviceContext c;
  regression_loss_forward(c.context, {prediction.view(), target.view(), loss.view(),
                                      gradient.view(), RegressionLoss::kLogistic});
  c.finish();
  EXPECT_EQ(loss.values(), (std::vector<State>{0, 1.5f * large}));
  EXPECT_EQ(as_floats(gradient.values()), (std::vector<State>{0, 0, 0, 1, -0.5f, 0}));
}

// Totals of losses without labels: no row is correct.
TEST_F(RegressionLossCudaOnce, TotalsWithoutLabelsAreThoseOfTheHost) {
  for (const std::int64_t rows : {0, 3, 2100}) {
    Operand<float> loss = random_operand({rows}, 2);
    BatchTotals expected{1.5, 2, 3, 4};
    Context host(1, 0);
    add_batch_totals(host.context,
                     {.ranks = {}, .loss = loss.view(), .top5 = true, .totals = &expected});
    EXPECT_EQ(expected.rows, rows + 3);
    std::array<BatchTotals, 2> found{BatchTotals{1.5, 2, 3, 4}, BatchTotals{}};
    DeviceContext c;
    const auto device_loss = to_device<float>({rows}, loss.values);
    const Arena memory(sizeof found, kDevice);
    auto* totals = reinterpret_cast<BatchTotals*>(memory.data());
    engine::cuda::copy_async(totals, &found, sizeof found, c.context.stream);
    add_batch_totals(c.context, {.ranks = {},
                                 .loss = device_loss.view(),
                                 .top5 = true,
                                 .totals = totals,
                                 .more = totals + 1});
    engine::cuda::copy_async(&found, totals, sizeof found, c.context.stream);
    c.finish();
    EXPECT_NEAR(found[0].loss_sum, expected.loss_sum, 1e-12 * static_cast<double>(rows));
    EXPECT_NEAR(found[1].loss_sum, expected.loss_sum - 1.5, 1e-12 * static_cast<double>(rows));
    for (const BatchTotals* each : {&expected, &found[0]}) {
      EXPECT_EQ(each->correct, 2);
      EXPECT_EQ(each->rows, rows + 3);
      EXPECT_EQ(each->top5, 4);
    }
    EXPECT_EQ(found[1].rows, rows);
  }
}

TEST_F(RegressionLossCudaOnce, RefusesTargetsOfAnotherType) {
  DeviceContext c;
  const auto half = to_device<bf16>({2, 1}, {1, 2});
  const auto wide = to_device<float>({2, 1}, {1, 2}), loss = to_device<float>({2}, {0, 0});
  EXPECT_THROW(regression_loss_forward(c.context, {half.view(), half.view(), loss.view()}),
               ShapeError);
  EXPECT_THROW(regression_loss_forward(c.context, {half.view(), wide.view(), half.view()}),
               ShapeError);
}

}  // namespace
}  // namespace engine::ops
