// What softmax and cross entropy mean: plain loops over rows. Contract: softmax_cross_entropy.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/ops/common/rows.h"
#include "engine/ops/loss/softmax_cross_entropy.h"

namespace engine::ops::reference {

// Rows [first, last). A NaN among the logits makes loss and gradient of its row NaN.
template <class T>
void softmax_cross_entropy_forward(const SoftmaxCrossEntropyForward& o, std::int64_t first,
                                   std::int64_t last) {
  const std::int64_t classes = row_sizes(o.logits).width;
  const T* logits = o.logits.as<T>();
  const auto* labels = o.labels.as<std::int32_t>();
  T *loss = o.loss.as<T>(), *gradient = o.gradient.as<T>();
  const T smoothing = static_cast<T>(o.label_smoothing);
  for (std::int64_t r = first; r < last; ++r) {
    const T* row = logits + r * classes;
    T largest = row[0];
    for (std::int64_t c = 1; c < classes; ++c) largest = row[c] > largest ? row[c] : largest;
    T sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(row[c] - largest);
    loss[r] = std::log(sum) - (row[labels[r]] - largest);
    const T share = smoothing / static_cast<T>(classes);
    if (smoothing > 0) {
      T all = 0;  // what the loss would be with each class as the label, added up
      for (std::int64_t c = 0; c < classes; ++c) all += std::log(sum) - (row[c] - largest);
      loss[r] = (1 - smoothing) * loss[r] + share * all;
    }
    if (gradient == nullptr) continue;
    for (std::int64_t c = 0; c < classes; ++c) {
      gradient[r * classes + c] =
          std::exp(row[c] - largest) / sum - (c == labels[r] ? 1 - smoothing : T{0}) - share;
    }
  }
}

// Rows [first, last).
template <class T>
void softmax_cross_entropy_backward(const SoftmaxCrossEntropyBackward& o, std::int64_t first,
                                    std::int64_t last) {
  const std::int64_t classes = row_sizes(o.gradient).width;
  const T *gradient = o.gradient.as<T>(), *dloss = o.dloss.as<T>();
  T* dlogits = o.dlogits.as<T>();
  for (std::int64_t r = first; r < last; ++r) {
    for (std::int64_t c = 0; c < classes; ++c) {
      const T value = gradient[r * classes + c] * dloss[r];
      T& to = dlogits[r * classes + c];
      to = o.write == Write::kAdd ? to + value : value;
    }
  }
}

// Rows whose first largest logit is the label; a row with a NaN is never correct.
template <class T>
std::int64_t count_correct(const T* logits, const std::int32_t* labels, std::int64_t rows,
                           std::int64_t classes) {
  std::int64_t correct = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = logits + r * classes;
    std::int64_t best = 0;
    bool number = true;
    for (std::int64_t c = 0; c < classes; ++c) {
      if (row[c] > row[best]) best = c;
      number = number && !std::isnan(row[c]);
    }
    if (number && best == labels[r]) ++correct;
  }
  return correct;
}

// Rows in which fewer than k logits come before the label's: larger ones, and equal ones of a lower
// class.
template <class T>
std::int64_t count_among_largest(const T* logits, const std::int32_t* labels, std::int64_t rows,
                                 std::int64_t classes, std::int64_t k) {
  std::int64_t among = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = logits + r * classes;
    const T own = row[labels[r]];
    std::int64_t before = 0;
    bool number = true;
    for (std::int64_t c = 0; c < classes; ++c) {
      before += row[c] > own || (row[c] == own && c < labels[r]);
      number = number && !std::isnan(row[c]);
    }
    if (number && before < k) ++among;
  }
  return among;
}

}  // namespace engine::ops::reference
