// ClassCounts: makes one pass over each row of logits.
#include "engine/train/scores/class_counts.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/loss/softmax_cross_entropy.h"

namespace engine {
namespace {

constexpr double kUnit = 4294967296.0;  // 2^32: sums of 2^31 confidences fit

double confidence_of_largest(std::span<const double> row, double largest) {
  double sum = 0;
  for (const double logit : row) sum += std::exp(logit - largest);
  return std::isfinite(sum) ? 1 / sum : 1;  // not finite: the largest is infinite
}

}  // namespace

ClassCounts::ClassCounts(std::int64_t classes, std::int64_t unknown)
    : width_(classes), classes_(classes + unknown) {
  const std::int64_t matrix = has_matrix() ? classes_ * classes_ : 0;
  counts_.resize(static_cast<std::size_t>(matrix_begin() + matrix));
}

void ClassCounts::clear() { std::fill(counts_.begin(), counts_.end(), 0); }

void ClassCounts::add(std::span<const double> logits, std::span<const std::int32_t> labels) {
  const auto width = static_cast<std::size_t>(width_);
  for (std::size_t r = 0; r < labels.size(); ++r) {
    const std::span<const double> row = logits.subspan(r * width, width);
    const std::int64_t label = labels[r];
    if (label == ops::kNoLabel) continue;
    ++slot(label);
    if (std::ranges::any_of(row, [](double logit) { return std::isnan(logit); })) continue;
    const auto best = std::max_element(row.begin(), row.end());
    const std::int64_t prediction = best - row.begin();
    const std::int64_t right = prediction == label ? 1 : 0;
    ++slot(classes_ + prediction);
    slot(2 * classes_ + label) += right;
    const double confidence = confidence_of_largest(row, *best);
    const std::int64_t bin = std::clamp(
        static_cast<std::int64_t>(std::ceil(confidence * kBins)) - 1, std::int64_t{0}, kBins - 1);
    ++slot(bin_begin() + bin);
    slot(bin_begin() + kBins + bin) += right;
    slot(bin_begin() + 2 * kBins + bin) += std::llround(confidence * kUnit);
    if (has_matrix()) ++slot(matrix_begin() + label * classes_ + prediction);
  }
}

ClassCounts::Means ClassCounts::macro() const {
  Means sum;
  std::int64_t present = 0;
  for (std::int64_t c = 0; c < classes_; ++c) {
    if (labelled(c) + predicted(c) == 0) continue;
    ++present;
    sum.precision += precision(c);
    sum.recall += recall(c);
    sum.f1 += f1(c);
  }
  const double scale = present == 0 ? 0 : 1 / static_cast<double>(present);
  return {sum.precision * scale, sum.recall * scale, sum.f1 * scale};
}

ClassCounts::Means ClassCounts::weighted() const {
  Means sum;
  std::int64_t rows = 0;
  for (std::int64_t c = 0; c < classes_; ++c) {
    const auto weight = static_cast<double>(labelled(c));
    rows += labelled(c);
    sum.precision += weight * precision(c);
    sum.recall += weight * recall(c);
    sum.f1 += weight * f1(c);
  }
  const double scale = rows == 0 ? 0 : 1 / static_cast<double>(rows);
  return {sum.precision * scale, sum.recall * scale, sum.f1 * scale};
}

double ClassCounts::calibration_error() const {
  double error = 0;
  std::int64_t rows = 0;
  for (std::int64_t b = 0; b < kBins; ++b) {
    const double confidence = static_cast<double>(at(bin_begin() + 2 * kBins + b)) / kUnit;
    error += std::abs(static_cast<double>(at(bin_begin() + kBins + b)) - confidence);
    rows += at(bin_begin() + b);
  }
  return rows == 0 ? 0 : error / static_cast<double>(rows);
}

double iou(const ClassCounts& counts, std::int64_t c) {
  const std::int64_t all = counts.predicted(c) + counts.labelled(c) - counts.correct(c);
  return all == 0 ? 0 : static_cast<double>(counts.correct(c)) / static_cast<double>(all);
}

double mean_iou(const ClassCounts& counts) {
  double sum = 0;
  std::int64_t present = 0;
  for (std::int64_t c = 0; c < counts.classes(); ++c) {
    if (counts.labelled(c) + counts.predicted(c) == 0) continue;
    ++present;
    sum += iou(counts, c);
  }
  return present == 0 ? 0 : sum / static_cast<double>(present);
}

}  // namespace engine
