// Outer steps against their definitions, written out once more in double.
#include "engine/averaging/policies/outer_step.h"

#include <gtest/gtest.h>

namespace engine {
namespace {

class OuterStepTest : public testing::Test {
 protected:
  OuterStepTest() : pool_(1), context_{.device = {}, .threads = &pool_, .scratch = {}} {}

  ParameterBuffer parameters_{DType::kF64, {{"w", TensorLayout::plain({2}), DType::kF64}}};
  std::span<double> w() { return parameters_.values.span<double>(); }

  ThreadPool pool_;
  KernelContext context_;
};

// The replicas' means after three periods; each starts from the result of the one before, from
// which the mean is this far.
constexpr double kMoved[3][2] = {{0.5, -1}, {0.25, 3}, {-1, 0.125}};
constexpr double kRate = 0.7, kMomentum = 0.9;

// torch.optim.SGD (buf = momentum * buf + g; nesterov: g + momentum * buf) with g = start - mean.
TEST_F(OuterStepTest, IsTorchSgdOnTheWayBack) {
  for (const bool nesterov : {false, true}) {
    w()[0] = 1;
    w()[1] = -2;
    OuterStep outer(parameters_, context_,
                    {.lr = kRate, .momentum = kMomentum, .nesterov = nesterov});
    outer.start();
    double expected[2] = {1, -2}, buf[2] = {0, 0};
    for (const auto& moved : kMoved) {
      for (std::size_t i = 0; i < 2; ++i) {
        w()[i] += moved[i];
        const double g = -moved[i];
        buf[i] = kMomentum * buf[i] + g;
        expected[i] -= kRate * (nesterov ? g + kMomentum * buf[i] : buf[i]);
      }
      outer.apply(0.05, 1);
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_NEAR(w()[i], expected[i], 1e-14) << (nesterov ? "nesterov" : "plain");
    }
    EXPECT_EQ(outer.steps(), 3);
  }
}

// By the rule, the first step gives the mean and leaves the momentum empty; the others are Nesterov
// steps with the values of the rule.
TEST_F(OuterStepTest, ByTheRuleTheMomentumGrows) {
  constexpr double kGrown[3] = {0, 1.0 / 9, 0.2};
  w()[0] = 1;
  w()[1] = -2;
  OuterStep outer(parameters_, context_,
                  {.lr = std::nullopt, .momentum = std::nullopt, .nesterov = true});
  outer.start();
  double expected[2] = {1, -2}, buf[2] = {0, 0};
  for (std::size_t k = 0; k < 3; ++k) {
    const double momentum = kGrown[k], lr = 1 - momentum / 3;
    for (std::size_t i = 0; i < 2; ++i) {
      w()[i] += kMoved[k][i];
      const double g = -kMoved[k][i];
      if (k > 0) buf[i] = momentum * buf[i] + g;
      expected[i] -= lr * (g + momentum * buf[i]);
    }
    outer.apply(0.05, 1000);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(w()[i], expected[i], 1e-14) << k;
  }
  ASSERT_EQ(outer.state().size(), 2u);
  EXPECT_NEAR(outer.state()[1].buffer->span<double>()[0], buf[0], 1e-14);
}

// Wang et al. 2019, algorithm 1: u = beta u + (x_0 - x_tau) / gamma; x = x_0 - alpha gamma u, the
// rate falling in between.
TEST_F(OuterStepTest, IsSlowMoWithAChangingInnerRate) {
  constexpr double kAlpha = 0.8, kBeta = 0.6;
  w()[0] = 1;
  w()[1] = -2;
  OuterStep outer(parameters_, context_,
                  {.lr = kAlpha, .momentum = kBeta, .over_inner_rate = true});
  outer.start();
  double expected[2] = {1, -2}, u[2] = {0, 0}, gamma = 0.1;
  for (const auto& moved : kMoved) {
    for (std::size_t i = 0; i < 2; ++i) {
      w()[i] += moved[i];
      u[i] = kBeta * u[i] - moved[i] / gamma;
      expected[i] -= kAlpha * gamma * u[i];
    }
    outer.apply(gamma, 1);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(w()[i], expected[i], 1e-13);
    gamma /= 2;
  }
}

TEST_F(OuterStepTest, AnInnerRateOfZeroLeavesTheMean) {
  OuterStep outer(parameters_, context_, {.lr = 1, .momentum = 0.5, .over_inner_rate = true});
  outer.start();
  w()[0] = 3;
  outer.apply(0, 1);
  EXPECT_EQ(w()[0], 3);
  EXPECT_EQ(outer.steps(), 0);
}

TEST_F(OuterStepTest, GoesOnFromItsState) {
  OuterStep one(parameters_, context_, {.lr = kRate, .momentum = kMomentum, .nesterov = true});
  one.start();
  w()[0] = 2;
  one.apply(1, 1);
  OuterStep other(parameters_, context_, {.lr = kRate, .momentum = kMomentum, .nesterov = true});
  PolicyCounters counters;
  one.add_counters(counters);
  for (std::size_t k = 0; k < 2; ++k)
    std::ranges::copy(one.state()[k].buffer->span<double>(),
                      other.state()[k].buffer->span<double>().begin());
  other.restore_counters(counters);
  other.start();  // does not forget where the replicas were
  const double start = w()[0];
  w()[0] = start + 1;
  one.apply(1, 1);
  const double expected = w()[0];
  w()[0] = start + 1;
  other.apply(1, 1);
  EXPECT_EQ(w()[0], expected);
  EXPECT_EQ(other.steps(), 2);
}

}  // namespace
}  // namespace engine
