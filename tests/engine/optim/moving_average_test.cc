// The moving average beside any optimizer: torch.optim.swa_utils' numbers, from the first update
// on.
#include "engine/optim/moving_average.h"

#include <gtest/gtest.h>

#include "engine/optim/optimizer_spec.h"
#include "tests/engine/optim/typed_optimizers.h"

namespace engine {
namespace {

class MovingAverageTest : public testing::Test {
 protected:
  MovingAverageTest()
      : pool_(1),
        scratch_(1 << 12),
        context_{.device = {}, .threads = &pool_, .scratch = {scratch_.data(), scratch_.bytes()}},
        parameters_(DType::kF64, {{"w", TensorLayout::plain({2}), DType::kF64}}) {
    parameters_.values.span<double>()[0] = 1;
    parameters_.values.span<double>()[1] = -2;
  }

  void step(Optimizer& optimizer, double a, double b) {
    parameters_.gradients.span<double>()[0] = a;
    parameters_.gradients.span<double>()[1] = b;
    optimizer.step(context_, 0.5, 1, parameters_.gradients, parameters_.values);
  }
  double value(std::size_t i) { return parameters_.values.span<double>()[i]; }

  ThreadPool pool_;
  Arena scratch_;
  KernelContext context_;
  ParameterBuffer parameters_;
};

// By hand: AveragedModel copies at the first update, then lerp(average, value, 1 - decay).
TEST_F(MovingAverageTest, FollowsTheValues) {
  const auto optimizer =
      with_moving_average(make_sgd({}, parameters_.values), 0.75, parameters_.values);
  const std::span<double> average = moving_average(*optimizer)->span<double>();
  step(*optimizer, 2, 4);
  EXPECT_EQ(value(0), 0);
  EXPECT_EQ(value(1), -4);
  EXPECT_EQ(average[0], 0) << "the first values, not a share of them";
  EXPECT_EQ(average[1], -4);
  step(*optimizer, -2, 8);
  EXPECT_EQ(average[0], 0.25);
  EXPECT_EQ(average[1], -5);
  step(*optimizer, -2, 0);
  EXPECT_EQ(average[0], 0.6875);
  EXPECT_EQ(average[1], -5.75);
  EXPECT_EQ(optimizer->step_count(), 3);
  for (std::size_t i = 2; i < average.size(); ++i) EXPECT_EQ(average[i], 0) << "a gap";
}

TEST_F(MovingAverageTest, GoesOnFromTheCountOfACheckpoint) {
  const auto optimizer =
      with_moving_average(make_sgd({}, parameters_.values), 0.75, parameters_.values);
  const std::span<double> average = moving_average(*optimizer)->span<double>();
  optimizer->set_step_count(7);
  average[0] = 5;
  step(*optimizer, 0, 0);
  EXPECT_EQ(average[0], 4);
  EXPECT_EQ(optimizer->step_count(), 8);
}

TEST_F(MovingAverageTest, LeavesTheOptimizerAsItIs) {
  for (const OptimizerSpec* spec : optimizers()) {
    const OptimizerSettings settings = default_settings(*spec);
    const std::vector<std::string> hidden{"w"};
    FlatBuffer plain_values(DType::kF64, {{"w", TensorLayout::plain({2, 2}), DType::kF64}}),
        values = FlatBuffer::like(plain_values), gradients = FlatBuffer::like(plain_values);
    for (std::size_t i = 0; i < 4; ++i)
      plain_values.span<double>()[i] = values.span<double>()[i] = 0.5 * static_cast<double>(i);
    const auto plain = spec->make(*spec, {settings, plain_values, hidden}),
               averaged =
                   with_moving_average(spec->make(*spec, {settings, values, hidden}), 0.9, values);
    EXPECT_EQ(&averaged->spec(), spec);
    EXPECT_EQ(averaged->text(), plain->text());
    EXPECT_EQ(averaged->state().size(), plain->state().size() + 1);
    EXPECT_EQ(moving_average(*plain), nullptr);
    Arena scratch(1 << 16);
    KernelContext context{
        .device = {}, .threads = &pool_, .scratch = {scratch.data(), scratch.bytes()}};
    for (int t = 1; t <= 3; ++t) {
      for (std::size_t i = 0; i < 4; ++i)
        gradients.span<double>()[i] = 0.1 * t - 0.2 * static_cast<double>(i);
      plain->step(context, 0.01, 1, gradients, plain_values);
      averaged->step(context, 0.01, 1, gradients, values);
    }
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(values.span<double>()[i], plain_values.span<double>()[i]) << spec->name;
    EXPECT_EQ(averaged->step_count(), plain->step_count()) << spec->name;
  }
}

}  // namespace
}  // namespace engine
