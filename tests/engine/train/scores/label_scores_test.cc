// Scores of several labels: scikit-learn's values, ties, unknown labels and labels without
// positives.
#include "engine/train/scores/label_scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace engine {
namespace {

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

const std::vector<double> kLogits{2.5, -1,  0,  1,    3, -2,   -0.5, 3,     0.25,   0,  -2,  -1,
                                  1,   0.5, -3, -1.5, 3, 0.25, 0.75, -0.25, -0.125, -3, 1.5, -4};
const std::vector<float> kValues{1, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 0,
                                 1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0};

// average_precision_score() and roc_auc_score() of each label, f1_score(zero_division=0) of each
// and with average= 'micro' and 'macro', of scikit-learn 1.9.1.
TEST(LabelScores, AreScikitLearns) {
  const LabelScores scores = label_scores(kLogits, kValues, 3);
  ASSERT_EQ(scores.labels.size(), 3u);
  EXPECT_DOUBLE_EQ(scores.labels[0].average_precision, 0.7333333333333333);
  EXPECT_DOUBLE_EQ(scores.labels[1].average_precision, 0.6499999999999999);
  EXPECT_TRUE(std::isnan(scores.labels[2].average_precision)) << "no positives";
  EXPECT_DOUBLE_EQ(scores.mean_average_precision(), 0.6916666666666667);
  EXPECT_DOUBLE_EQ(scores.labels[0].roc_auc, 0.71875);
  EXPECT_DOUBLE_EQ(scores.labels[1].roc_auc, 0.6875) << "equal logits count half";
  EXPECT_TRUE(std::isnan(scores.labels[2].roc_auc));
  EXPECT_DOUBLE_EQ(scores.mean_roc_auc(), 0.703125);
  EXPECT_DOUBLE_EQ(scores.labels[0].f1(), 0.6666666666666666);
  EXPECT_DOUBLE_EQ(scores.labels[1].f1(), 0.6666666666666666);
  EXPECT_EQ(scores.labels[2].f1(), 0);
  EXPECT_DOUBLE_EQ(scores.micro_f1(), 0.5714285714285714);
  EXPECT_DOUBLE_EQ(scores.macro_f1(), 0.4444444444444444);
}

// The same functions without sample 2.
TEST(LabelScores, LeaveOutUnknownLabels) {
  std::vector<float> values = kValues;
  values[6] = kUnknown;
  const LabelScores scores = label_scores(kLogits, values, 3);
  EXPECT_EQ(scores.labels[0].known, 7);
  EXPECT_EQ(scores.labels[0].positives, 3);
  EXPECT_DOUBLE_EQ(scores.labels[0].average_precision, 0.7555555555555555);
  EXPECT_DOUBLE_EQ(scores.labels[0].f1(), 0.75);
  EXPECT_EQ(scores.labels[1].known, 8);
}

TEST(LabelScores, DoNotDependOnTheOrderOfSamples) {
  std::vector<double> logits;
  std::vector<float> values;
  for (std::size_t sample = 8; sample-- > 0;)
    for (std::size_t k = 0; k < 3; ++k) {
      logits.push_back(kLogits[3 * sample + k]);
      values.push_back(kValues[3 * sample + k]);
    }
  const LabelScores one = label_scores(kLogits, kValues, 3),
                    other = label_scores(logits, values, 3);
  EXPECT_EQ(other.mean_average_precision(), one.mean_average_precision());
  EXPECT_EQ(other.macro_f1(), one.macro_f1());
  EXPECT_EQ(other.mean_roc_auc(), one.mean_roc_auc());
}

TEST(LabelScores, PerfectOnesAreExactlyOneAndNanIsTheLowest) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const LabelScores perfect = label_scores(std::vector<double>{3, 2, 1, -1, -2, nan},
                                           std::vector<float>{1, 1, 1, 0, 0, 0}, 1);
  EXPECT_EQ(perfect.mean_average_precision(), 1);
  EXPECT_EQ(perfect.mean_roc_auc(), 1);
  EXPECT_EQ(perfect.micro_f1(), 1);
  const LabelScores worst = label_scores(std::vector<double>{nan, -5}, std::vector<float>{1, 0}, 1);
  EXPECT_EQ(worst.mean_average_precision(), 0.5);
  EXPECT_EQ(worst.mean_roc_auc(), 0);
}

TEST(LabelScores, AreUndefinedOrZeroWithoutSamples) {
  const LabelScores none = label_scores({}, {}, 2);
  EXPECT_TRUE(std::isnan(none.mean_average_precision()));
  EXPECT_EQ(none.micro_f1(), 0);
  EXPECT_EQ(none.macro_f1(), 0);
}

}  // namespace
}  // namespace engine
