// Axes of strided operators for tests on the CPU and on a CUDA device: each kind of loop, at odd
// sizes.
#pragma once

#include <initializer_list>

#include "engine/ops/general/axes.h"

namespace engine::ops {

template <int kOperands>
Axes<kOperands> axes_of(std::initializer_list<Axis<kOperands>> all) {
  Axes<kOperands> axes;
  for (const Axis<kOperands>& axis : all) axes.add(axis);
  return axes;
}

struct CopyCase {
  const char* name;
  Axes<2> axes;
  std::int64_t x_first = 0, y_first = 0;
};

inline const CopyCase kCopies[] = {
    {"flat", axes_of<2>({{9000, {1, 1}}}), 3, 5},
    {"flat and aligned", axes_of<2>({{3, {64, 128}}, {48, {1, 1}}}), 16, 32},
    {"transposition", axes_of<2>({{3, {6000, 6000}}, {100, {60, 1}}, {60, {1, 100}}})},
    {"transposition of few rows", axes_of<2>({{700, {3, 1}}, {3, {1, 700}}})},
    {"runs in another order", axes_of<2>({{7, {8, 160}}, {20, {56, 8}}, {8, {1, 1}}})},
    {"every second", axes_of<2>({{33, {50, 20}}, {20, {2, 1}}}), 1},
    {"to every second", axes_of<2>({{33, {20, 50}}, {20, {1, 2}}}), 0, 1},
    {"expansion", axes_of<2>({{5, {0, 400}}, {20, {1, 20}}, {20, {0, 1}}})},
    {"four axes", axes_of<2>({{3, {280, 1}}, {5, {56, 24}}, {8, {7, 3}}, {7, {1, 120}}})},
    {"nothing", axes_of<2>({{0, {20, 20}}, {20, {1, 1}}})},
};

}  // namespace engine::ops
