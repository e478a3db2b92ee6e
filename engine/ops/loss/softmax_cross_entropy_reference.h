// Implements softmax and cross entropy in plain loops over rows, as the reference for tests.
// Contract: softmax_cross_entropy.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/ops/common/rows.h"
#include "engine/ops/loss/softmax_cross_entropy.h"

namespace engine::ops::reference {

// Returns the number of logits that rank before the label's; 8 if one is NaN.
template <class T>
std::int32_t label_rank(const T* row, std::int64_t classes, std::int32_t label) {
  std::int32_t before = 0, nans = 0;
  for (std::int64_t c = 0; c < classes; ++c) {
    before += row[c] > row[label] || (row[c] == row[label] && c < label);
    nans += std::isnan(row[c]);
  }
  return nans == 0 ? before : 8;
}

// Row r has no label.
template <class T>
void leave_out(const SoftmaxCrossEntropyForward& o, std::int64_t r, std::int64_t classes) {
  o.loss.as<T>()[r] = 0;
  if (o.ranks) o.ranks.as<std::int32_t>()[r] = kNoRank;
  if (o.gradient) std::fill_n(o.gradient.as<T>() + r * classes, classes, T{0});
}

// Computes rows [first, last). A NaN among the logits makes loss and gradient of its row NaN.
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
    if (labels[r] == kNoLabel) {
      leave_out<T>(o, r, classes);
      continue;
    }
    if (o.ranks) o.ranks.as<std::int32_t>()[r] = label_rank(row, classes, labels[r]);
    T largest = row[0];
    for (std::int64_t c = 1; c < classes; ++c) largest = row[c] > largest ? row[c] : largest;
    T sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(row[c] - largest);
    loss[r] = std::log(sum) - (row[labels[r]] - largest);
    const T share = smoothing / static_cast<T>(classes);
    if (smoothing > 0) {
      T all = 0;  // the sum of the losses with each class as the label
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

// Computes rows [first, last).
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

}  // namespace engine::ops::reference
