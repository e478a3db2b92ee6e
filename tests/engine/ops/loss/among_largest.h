// Which rows of logits count as right, said without ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/engine/ops/common/kernel_test_support.h"

namespace kernel_test {

// Rows whose label is among the first k classes when they are sorted from the largest logit down,
// equal ones as they come; a row with a NaN does not count.
template <class T>
std::int64_t among_largest(const Operand<T>& logits, const std::vector<std::int32_t>& labels,
                           std::int64_t k) {
  std::int64_t among = 0;
  const auto classes = static_cast<std::size_t>(logits.shape[1]);
  for (std::size_t r = 0; r < labels.size(); ++r) {
    const T* row = logits.values.data() + r * classes;
    if (std::any_of(row, row + classes, [](T value) { return std::isnan(value); })) continue;
    std::vector<std::int32_t> order(classes);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [row](std::int32_t a, std::int32_t b) { return row[a] > row[b]; });
    order.resize(std::min(classes, static_cast<std::size_t>(k)));
    among += std::count(order.begin(), order.end(), labels[r]);
  }
  return among;
}

}  // namespace kernel_test
