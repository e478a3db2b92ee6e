// Losses of predicted numbers: PyTorch's values, NaNs, threads, and what is refused.
#include "engine/ops/loss/regression_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/engine/ops/common/kernel_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

template <class T>
struct RegressionLosses {
  Operand<T> loss, gradient;
};

template <class T>
RegressionLosses<T> losses_of(const std::vector<double>& prediction,
                              const std::vector<double>& target, std::int64_t rows,
                              RegressionLoss kind, int threads = 1) {
  const auto width = static_cast<std::int64_t>(prediction.size()) / rows;
  Operand<T> p({rows, width}, 0), t({rows, width}, 0);
  for (std::size_t i = 0; i < prediction.size(); ++i) {
    p.values[i] = static_cast<T>(prediction[i]);
    t.values[i] = static_cast<T>(target[i]);
  }
  RegressionLosses<T> result{Operand<T>({rows}, 0), Operand<T>({rows, width}, 0)};
  Context c(threads, 0);
  regression_loss_forward(c.context, {.prediction = p.view(),
                                      .target = t.view(),
                                      .loss = result.loss.view(),
                                      .gradient = result.gradient.view(),
                                      .kind = kind});
  return result;
}

const std::vector<double> kPredictions{1, -2, 0.5, 3, 3, 3, 0.25, 1e-3, -7};
const std::vector<double> kTargets{0.5, -2, 1.25, 1, 4, 3, 0.125, -1e-3, 2};

constexpr RegressionLoss kKinds[] = {RegressionLoss::kSquared, RegressionLoss::kAbsolute,
                                     RegressionLoss::kHuber, RegressionLoss::kLogistic};

// mse_loss, l1_loss and huber_loss(reduction='none').mean(1) of torch 2 in float64, and the
// gradients of their sums.
const std::vector<double> kSquared{0.2708333333333333, 1.6666666666666667, 27.00520966666667};
const std::vector<double> kSquaredGradient{
    0.3333333333333333,    0, -0.5, 1.3333333333333333, -0.6666666666666666, 0, 0.08333333333333333,
    0.0013333333333333333, -6};
const std::vector<double> kAbsolute{0.4166666666666667, 1, 3.0423333333333336};
constexpr double kThird = 0.3333333333333333;
const std::vector<double> kAbsoluteGradient{kThird, 0,      -kThird, kThird, -kThird,
                                            0,      kThird, kThird,  -kThird};
const std::vector<double> kHuber{0.13541666666666666, 0.6666666666666666, 2.8359381666666668};
const std::vector<double> kHuberGradient{
    0.16666666666666666,   0,      -0.25, kThird, -kThird, 0, 0.041666666666666664,
    0.0006666666666666666, -kThird};

template <class T>
void expect_pytorchs(double relative) {
  const auto squared = losses_of<T>(kPredictions, kTargets, 3, RegressionLoss::kSquared),
             absolute = losses_of<T>(kPredictions, kTargets, 3, RegressionLoss::kAbsolute),
             huber = losses_of<T>(kPredictions, kTargets, 3, RegressionLoss::kHuber);
  EXPECT_EQ(far_apart(squared.loss.values, kSquared, relative, 0), "");
  EXPECT_EQ(far_apart(squared.gradient.values, kSquaredGradient, relative, 0), "");
  EXPECT_EQ(far_apart(absolute.loss.values, kAbsolute, relative, 0), "");
  EXPECT_EQ(far_apart(absolute.gradient.values, kAbsoluteGradient, relative, 0), "");
  EXPECT_EQ(far_apart(huber.loss.values, kHuber, relative, 0), "");
  EXPECT_EQ(far_apart(huber.gradient.values, kHuberGradient, relative, 0), "");
}

TEST(RegressionLoss, IsPyTorchs) {
  expect_pytorchs<double>(1e-15);
  expect_pytorchs<float>(1e-6);
}

// binary_cross_entropy_with_logits(reduction='none').sum(1) of torch 2 in float64, without and with
// pos_weight (1, 2.5, 0.75), and the gradients of their sums.
const std::vector<double> kLogits{1, -2, 0.5, 3, -40, 100, 0.25, 1e-3, -7};
const std::vector<double> kFlags{1, 0, 1, 0, 1, 0, 1, 0, 1};
const std::vector<double> kWeightedFlags{1, 0, 0.75, 0, 2.5, 0, 1, 0, 0.75};
const std::vector<double> kLogistic{0.9142666827413022, 143.04858735157376, 8.270498191892559};
const std::vector<double> kLogisticGradient{
    -0.2689414213699951,  0.11920292202211755, -0.3775406687981454, 0.9525741268224334, -1, 1,
    -0.43782349911420193, 0.5002499999791666,  -0.9990889488055994};
const std::vector<double> kWeighted{0.7957474366962756, 203.04858735157376, 6.520270325279114};
const std::vector<double> kWeightedGradient{
    -0.2689414213699951,  0.11920292202211755, -0.283155501598609, 0.9525741268224334, -2.5, 1,
    -0.43782349911420193, 0.5002499999791666,  -0.7493167116041995};

template <class T>
void expect_logistic(double relative) {
  const auto plain = losses_of<T>(kLogits, kFlags, 3, RegressionLoss::kLogistic),
             weighted = losses_of<T>(kLogits, kWeightedFlags, 3, RegressionLoss::kLogistic);
  EXPECT_EQ(far_apart(plain.loss.values, kLogistic, relative, 0), "");
  EXPECT_EQ(far_apart(plain.gradient.values, kLogisticGradient, relative, 0), "");
  EXPECT_EQ(far_apart(weighted.loss.values, kWeighted, relative, 0), "");
  EXPECT_EQ(far_apart(weighted.gradient.values, kWeightedGradient, relative, 0), "");
}

TEST(RegressionLoss, OfLogitsIsPyTorchsWithPositiveWeights) {
  expect_logistic<double>(1e-14);
  expect_logistic<float>(1e-6);
}

TEST(RegressionLoss, OfLogitsNeitherOverflowsNorIncludesUnknownLabels) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto found = losses_of<float>({1e30, -1e30, 5, 1e30, -1e30, 5}, {1, 0, kNan, 0, 1, kNan}, 2,
                                      RegressionLoss::kLogistic);
  EXPECT_EQ(found.loss.values, (std::vector<float>{0, 2e30f}));
  EXPECT_EQ(found.gradient.values, (std::vector<float>{0, 0, 0, 1, -1, 0}));
}

TEST(RegressionLoss, HasTheSameBitsForAnyNumberOfThreads) {
  std::vector<double> predictions, targets;
  for (int i = 0; i < 67 * 5; ++i) {
    predictions.push_back(std::sin(i));
    targets.push_back(std::cos(3 * i));
  }
  for (const RegressionLoss kind : kKinds) {
    const auto one = losses_of<float>(predictions, targets, 67, kind, 1);
    for (int threads = 2; threads <= 4; ++threads) {
      const auto several = losses_of<float>(predictions, targets, 67, kind, threads);
      EXPECT_EQ(several.loss.values, one.loss.values);
      EXPECT_EQ(several.gradient.values, one.gradient.values);
    }
  }
}

// PyTorch's sign gives NaN for NaN as well.
TEST(RegressionLoss, NanStaysNanInItsRowOnly) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const RegressionLoss kind : kKinds) {
    const auto found = losses_of<double>({kNan, 1, 2, 3}, {0, 0, 2, 1}, 2, kind);
    EXPECT_TRUE(std::isnan(found.loss.values[0]));
    EXPECT_TRUE(std::isnan(found.gradient.values[0]));
    EXPECT_FALSE(std::isnan(found.gradient.values[1]));
    EXPECT_FALSE(std::isnan(found.loss.values[1]));
  }
}

TEST(RegressionLoss, NoRowsAreNothing) {
  Operand<float> none({0, 2}, 0), loss({0}, 0);
  Context c(2, 0);
  EXPECT_NO_THROW(regression_loss_forward(
      c.context, {.prediction = none.view(), .target = none.view(), .loss = loss.view()}));
}

TEST(RegressionLoss, RefusesOtherShapesAndTypes) {
  Operand<float> prediction({2, 2}, 0), target({2, 2}, 0), loss({2}, 0), narrow({2, 1}, 0);
  Operand<double> wide({2, 2}, 0);
  Context c(1, 0);
  EXPECT_THROW(regression_loss_forward(
                   c.context,
                   {.prediction = prediction.view(), .target = narrow.view(), .loss = loss.view()}),
               ShapeError);
  EXPECT_THROW(
      regression_loss_forward(
          c.context, {.prediction = prediction.view(), .target = wide.view(), .loss = loss.view()}),
      Error);
  EXPECT_THROW(
      regression_loss_forward(
          c.context, {.prediction = loss.view(), .target = loss.view(), .loss = loss.view()}),
      ShapeError);
}

}  // namespace
}  // namespace engine::ops
