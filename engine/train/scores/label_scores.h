// Scores of predictions of several labels of 0 or 1, as scikit-learn computes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace engine {

// The scores of one label over the samples for which it is known. A sample's prediction is 1 if its
// probability is at least 0.5, that is, its logit is at least 0; a NaN counts as the lowest logit.
struct LabelScore {
  std::int64_t known = 0, positives = 0;  // samples
  std::int64_t predicted = 0, hits = 0;   // samples with the prediction 1, and those that are right
  // The sum over the distinct logits, from the highest, of the precision of all samples with at
  // least this logit, times the share of the positives that have it: average_precision_score(). NaN
  // without positives.
  double average_precision = 0;
  // The share of the pairs of a positive and a negative in which the positive has the higher logit;
  // equal logits count half: roc_auc_score(). NaN without positives or negatives.
  double roc_auc = 0;
  double precision() const;  // 0 if the divisor is 0, as for zero_division=0
  double recall() const;
  double f1() const;
};

struct LabelScores {
  std::vector<LabelScore> labels;
  double mean_average_precision() const;  // over labels with positives; NaN if there are none
  double mean_roc_auc() const;  // over labels with positives and negatives; NaN if there are none
  double macro_f1() const;      // the mean over all labels
  double micro_f1() const;      // of the counts of all labels together
};

// `logits` and `values` are [samples, labels]; a value is 1, 0, or NaN for a label that is unknown.
// Samples in another order have the same scores. REQUIRES: labels >= 1.
LabelScores label_scores(std::span<const double> logits, std::span<const float> values,
                         std::int64_t labels);

}  // namespace engine
