// Optimizers over several steps against PyTorch: torch.optim.SGD / AdamW in float64 on one
// parameter [1, -2] with the gradients [0.5, -1], [0.25, 3], [-1, 0.125].
#include "engine/optim/optimizer.h"
#include "tests/engine/optim/typed_optimizers.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace engine {
namespace {

class OptimizerTest : public testing::Test {
 protected:
  OptimizerTest()
      : pool_(1),
        scratch_(1 << 12),
        context_{.device = {}, .threads = &pool_, .scratch = {scratch_.data(), scratch_.bytes()}} {}

  std::vector<double> run(const std::function<std::unique_ptr<Optimizer>(const FlatBuffer&)>& make,
                          double lr) {
    const std::vector<NamedLayout> layouts{{"w", TensorLayout::plain({2}), DType::kF64}};
    ParameterBuffer parameters(DType::kF64, layouts);
    parameters.values.span<double>()[0] = 1;
    parameters.values.span<double>()[1] = -2;
    const auto optimizer = make(parameters.values);
    for (const auto& [a, b] : {std::pair{0.5, -1.0}, {0.25, 3.0}, {-1.0, 0.125}}) {
      parameters.gradients.span<double>()[0] = a;
      parameters.gradients.span<double>()[1] = b;
      optimizer->step(context_, lr, 1, parameters.gradients, parameters.values);
    }
    EXPECT_EQ(optimizer->step_count(), 3);
    for (std::size_t i = 2; i < parameters.values.span<double>().size(); ++i)
      EXPECT_EQ(parameters.values.span<double>()[i], 0);
    return {parameters.values.span<double>()[0], parameters.values.span<double>()[1]};
  }

  ThreadPool pool_;
  Arena scratch_;
  KernelContext context_;
};

TEST_F(OptimizerTest, SgdWithMomentumAndWeightDecay) {
  const auto w = run(
      [](const FlatBuffer& v) { return make_sgd({.momentum = 0.9, .weight_decay = 0.1}, v); }, 0.1);
  EXPECT_NEAR(w[0], 0.863524, 1e-14);
  EXPECT_NEAR(w[1], -2.201048, 1e-14);
}

TEST_F(OptimizerTest, SgdNesterov) {
  const auto w = run(
      [](const FlatBuffer& v) { return make_sgd({.momentum = 0.9, .nesterov = true}, v); }, 0.1);
  EXPECT_NEAR(w[0], 0.9503, 1e-14);
  EXPECT_NEAR(w[1], -2.49285, 1e-14);
}

TEST_F(OptimizerTest, Adamw) {
  const auto w = run([](const FlatBuffer& v) { return make_adamw({.weight_decay = 0.1}, v); }, 0.1);
  EXPECT_NEAR(w[0], 0.8006389224608368, 1e-14);
  EXPECT_NEAR(w[1], -1.9322085175864672, 1e-14);
}

TEST_F(OptimizerTest, ClippingScalesLongGradientsOnly) {
  FlatBuffer gradients(DType::kF64, {{"w", TensorLayout::plain({2}), DType::kF64}});
  gradients.span<double>()[0] = 3;
  gradients.span<double>()[1] = 4;
  const double norm = gradient_norm(context_, gradients);
  EXPECT_EQ(norm, 5);
  EXPECT_EQ(clip_factor(norm, 0), 1);
  EXPECT_EQ(clip_factor(norm, 6), 1);
  EXPECT_NEAR(clip_factor(norm, 1), 1 / (5 + 1e-6), 1e-15);
}

}  // namespace
}  // namespace engine
