// Counts the results of an evaluation per class as integers, so that sums over ranks are exact in
// any order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace engine {

class ClassCounts {
 public:
  // With more classes there is no confusion matrix: it would need more than 32 MiB on every rank.
  static constexpr std::int64_t kMaxForMatrix = 2048;
  // Bins of equal width, closed above: (0, 1/15], (1/15, 2/15] ... (C. Guo et al., "On Calibration
  // of Modern Neural Networks", 2017, section 2).
  static constexpr std::int64_t kBins = 15;

  // `unknown` is the number of classes that the model does not have, and so never predicts; they
  // follow its own classes.
  explicit ClassCounts(std::int64_t classes, std::int64_t unknown = 0);

  void clear();
  // Adds rows of the model's logits with their labels, which are below classes(); a row of kNoLabel
  // does not count. The prediction is the first of the largest logits, the confidence its softmax,
  // rounded to a multiple of 2^-32. A row with a NaN has no prediction: it counts only for its
  // label.
  void add(std::span<const double> logits, std::span<const std::int32_t> labels);
  // All values that are summed over ranks.
  std::span<std::int64_t> all() { return counts_; }

  std::int64_t classes() const { return classes_; }
  std::int64_t labelled(std::int64_t c) const { return at(c); }  // rows whose label is c
  std::int64_t predicted(std::int64_t c) const { return at(classes_ + c); }
  std::int64_t correct(std::int64_t c) const { return at(2 * classes_ + c); }
  bool has_matrix() const { return classes_ <= kMaxForMatrix; }
  std::int64_t confusion(std::int64_t label, std::int64_t prediction) const {
    return at(matrix_begin() + label * classes_ + prediction);
  }

  // Fractions of 1; 0 if the divisor is 0.
  double precision(std::int64_t c) const { return share(correct(c), predicted(c)); }
  double recall(std::int64_t c) const { return share(correct(c), labelled(c)); }
  double f1(std::int64_t c) const { return share(2 * correct(c), predicted(c) + labelled(c)); }

  struct Means {
    double precision = 0, recall = 0, f1 = 0;
  };
  Means macro() const;     // over the classes that occur as a label or as a prediction
  Means weighted() const;  // weighted by labelled()

  // The mean of |accuracy - confidence| over the bins, weighted by their rows.
  double calibration_error() const;

 private:
  std::int64_t at(std::int64_t i) const { return counts_[static_cast<std::size_t>(i)]; }
  std::int64_t& slot(std::int64_t i) { return counts_[static_cast<std::size_t>(i)]; }
  std::int64_t bin_begin() const { return 3 * classes_; }
  std::int64_t matrix_begin() const { return bin_begin() + 3 * kBins; }
  static double share(std::int64_t part, std::int64_t of) {
    return of == 0 ? 0 : static_cast<double>(part) / static_cast<double>(of);
  }

  std::int64_t width_;    // number of logits per row
  std::int64_t classes_;  // includes the unknown ones
  // Per class: labelled, predicted, correct. Per bin: rows, correct rows, confidence in units of
  // 2^-32. Then the confusion matrix, a row for each label.
  std::vector<std::int64_t> counts_;
};

// The intersection over the union of the rows of class c and those predicted as c (Jaccard); 0 if
// there are none.
double iou(const ClassCounts& counts, std::int64_t c);
// The mean over the classes that occur as a label or as a prediction; 0 if there are none.
double mean_iou(const ClassCounts& counts);

}  // namespace engine
