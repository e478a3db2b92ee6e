// What softmax and cross entropy mean: plain loops over rows. Contract: softmax_cross_entropy.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/ops/common/kernel_context.h"

namespace engine::ops::reference {

// `gradient` may be nullptr. A NaN among the logits makes loss and gradient of its row NaN.
template <class T>
void softmax_cross_entropy_forward(const T* logits, const std::int32_t* labels, std::int64_t rows,
                                   std::int64_t classes, T* loss, T* gradient, T smoothing) {
  for (std::int64_t r = 0; r < rows; ++r) {
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

template <class T>
void softmax_cross_entropy_backward(const T* gradient, const T* dloss, std::int64_t rows,
                                    std::int64_t classes, T* dlogits, Write write) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < classes; ++c) {
      const T value = gradient[r * classes + c] * dloss[r];
      T& to = dlogits[r * classes + c];
      to = write == Write::kAdd ? to + value : value;
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
