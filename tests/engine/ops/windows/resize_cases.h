// Sizes that the tests of resizing compute.
#pragma once

#include "engine/ops/windows/resize.h"

namespace kernel_test {

using engine::ops::ResizeAxis;

inline ResizeAxis by_size(std::int64_t in, std::int64_t out, bool linear) {
  return {in, out, static_cast<double>(in) / static_cast<double>(out), linear};
}
inline ResizeAxis by_factor(std::int64_t in, double factor, bool linear) {
  return {in, static_cast<std::int64_t>(static_cast<double>(in) * factor), 1 / factor, linear};
}

struct ResizeCase {
  std::int64_t n, channels;
  ResizeAxis rows, columns;

  Shape x() const { return {n, rows.in, columns.in, channels}; }
  Shape y() const { return {n, rows.out, columns.out, channels}; }
};

inline const ResizeCase kResizes[] = {
    {2, 3, by_factor(5, 2, true), by_factor(7, 2, true)},
    {1, 70, by_size(9, 4, true), by_size(3, 11, true)},
    {2, 5, by_factor(7, 1.7, true), by_factor(9, 0.3, true)},
    {3, 4, by_size(7, 10, false), by_size(10, 3, false)},
    {1, 1, by_factor(3, 8, false), by_factor(11, 0.5, false)},
    {2, 2, by_size(1, 6, true), by_size(6, 1, true)},
    {0, 2, by_size(4, 6, true), by_size(6, 4, true)},
};

}  // namespace kernel_test
