// Sorts the logits of each label, and counts.
#include "engine/train/scores/label_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace engine {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double ratio(std::int64_t part, std::int64_t of) {
  return of == 0 ? 0 : static_cast<double>(part) / static_cast<double>(of);
}

// `sorted` has logits, the highest first, and whether the label is 1. Samples with equal logits
// cannot be separated by a threshold: they count together.
double average_precision(std::span<const std::pair<double, bool>> sorted, std::int64_t positives) {
  if (positives == 0) return kNan;
  double sum = 0;
  std::int64_t hits = 0;
  for (std::size_t i = 0; i < sorted.size();) {
    const std::int64_t before = hits;
    const double logit = sorted[i].first;
    for (; i < sorted.size() && sorted[i].first == logit; ++i) hits += sorted[i].second;
    sum += static_cast<double>(hits - before) * ratio(hits, static_cast<std::int64_t>(i));
  }
  return sum / static_cast<double>(positives);
}

// The same order. Counts pairs twice, so that a pair of equal logits counts once.
double roc_auc(std::span<const std::pair<double, bool>> sorted, std::int64_t positives) {
  const std::int64_t negatives = std::ssize(sorted) - positives;
  if (positives == 0 || negatives == 0) return kNan;
  std::int64_t above = 0;  // positives with a higher logit
  double twice = 0;
  for (std::size_t i = 0; i < sorted.size();) {
    const double logit = sorted[i].first;
    std::int64_t equal_positives = 0, equal_negatives = 0;
    for (; i < sorted.size() && sorted[i].first == logit; ++i)
      sorted[i].second ? ++equal_positives : ++equal_negatives;
    twice +=
        static_cast<double>(equal_negatives) * static_cast<double>(2 * above + equal_positives);
    above += equal_positives;
  }
  return twice / 2 / (static_cast<double>(positives) * static_cast<double>(negatives));
}

LabelScore score_of(std::vector<std::pair<double, bool>>& samples) {
  LabelScore score{.known = std::ssize(samples)};
  for (const auto& [logit, positive] : samples) {
    score.positives += positive;
    score.predicted += logit >= 0;
    score.hits += positive && logit >= 0;
  }
  std::ranges::sort(samples, std::ranges::greater{});
  score.average_precision = average_precision(samples, score.positives);
  score.roc_auc = roc_auc(samples, score.positives);
  return score;
}

}  // namespace

double LabelScore::precision() const { return ratio(hits, predicted); }
double LabelScore::recall() const { return ratio(hits, positives); }
double LabelScore::f1() const { return ratio(2 * hits, predicted + positives); }

double LabelScores::mean_average_precision() const {
  double sum = 0;
  std::int64_t count = 0;
  for (const LabelScore& label : labels) {
    if (label.positives == 0) continue;
    sum += label.average_precision;
    ++count;
  }
  return count == 0 ? kNan : sum / static_cast<double>(count);
}

double LabelScores::mean_roc_auc() const {
  double sum = 0;
  std::int64_t count = 0;
  for (const LabelScore& label : labels) {
    if (std::isnan(label.roc_auc)) continue;
    sum += label.roc_auc;
    ++count;
  }
  return count == 0 ? kNan : sum / static_cast<double>(count);
}

double LabelScores::macro_f1() const {
  double sum = 0;
  for (const LabelScore& label : labels) sum += label.f1();
  return sum / static_cast<double>(labels.size());
}

double LabelScores::micro_f1() const {
  LabelScore all;
  for (const LabelScore& label : labels) {
    all.positives += label.positives;
    all.predicted += label.predicted;
    all.hits += label.hits;
  }
  return all.f1();
}

LabelScores label_scores(std::span<const double> logits, std::span<const float> values,
                         std::int64_t labels) {
  const auto width = static_cast<std::size_t>(labels);
  LabelScores scores;
  std::vector<std::pair<double, bool>> samples;
  for (std::size_t label = 0; label < width; ++label) {
    samples.clear();
    for (std::size_t i = label; i < values.size(); i += width)
      if (!std::isnan(values[i]))
        samples.emplace_back(
            std::isnan(logits[i]) ? -std::numeric_limits<double>::infinity() : logits[i],
            values[i] > 0);
    scores.labels.push_back(score_of(samples));
  }
  return scores;
}

}  // namespace engine
