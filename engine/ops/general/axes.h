// The axes of loops over strided operands, merged to as few as possible, and the loops over their
// runs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "engine/core/shape.h"

namespace engine::ops {

// One axis of a loop; the steps are in elements, one for each operand. An operand that is the same
// along the axis has the step 0.
template <int kOperands>
struct Axis {
  std::int64_t count = 1;
  std::array<std::int64_t, kOperands> steps{};
};

// The axes of a loop, outermost first. None has one element; the loop of no axes has one element.
template <int kOperands>
struct Axes {
  std::array<Axis<kOperands>, Shape::kMaxRank> at{};
  int count = 0;

  // Adds an axis inside the others; one that continues the last is merged with it.
  constexpr void add(const Axis<kOperands>& axis) {
    if (axis.count == 1) return;
    if (count > 0 && continues(at[static_cast<std::size_t>(count - 1)], axis)) {
      Axis<kOperands>& last = at[static_cast<std::size_t>(count - 1)];
      last = {last.count * axis.count, axis.steps};
      return;
    }
    at[static_cast<std::size_t>(count++)] = axis;
  }
  constexpr std::int64_t elements() const {
    std::int64_t product = 1;
    for (int d = 0; d < count; ++d) product *= at[static_cast<std::size_t>(d)].count;
    return product;
  }
  constexpr Axis<kOperands> inner() const {
    return count > 0 ? at[static_cast<std::size_t>(count - 1)] : Axis<kOperands>{};
  }
  // Returns the largest index of an operand, from 0. REQUIRES: elements() > 0; no negative step.
  constexpr std::int64_t last_index(int operand) const {
    std::int64_t index = 0;
    for (int d = 0; d < count; ++d) {
      const Axis<kOperands>& axis = at[static_cast<std::size_t>(d)];
      index += (axis.count - 1) * axis.steps[static_cast<std::size_t>(operand)];
    }
    return index;
  }

 private:
  static constexpr bool continues(const Axis<kOperands>& outer, const Axis<kOperands>& inner) {
    for (std::size_t k = 0; k < kOperands; ++k)
      if (outer.steps[k] != inner.count * inner.steps[k]) return false;
    return true;
  }
};

// The steps of a dense tensor's dimensions.
inline std::array<std::int64_t, Shape::kMaxRank> dense_steps(const Shape& shape) {
  std::array<std::int64_t, Shape::kMaxRank> steps{};
  std::int64_t step = 1;
  for (int d = shape.rank() - 1; d >= 0; step *= shape[d--])
    steps[static_cast<std::size_t>(d)] = step;
  return steps;
}

// Calls body(places, count) for the runs along the innermost axis that cover the elements [first,
// last) in their order; `places` are the indices of a run's first element in each operand.
template <int kOperands, class Body>
void for_each_run(const Axes<kOperands>& axes, std::int64_t first, std::int64_t last, Body body) {
  if (first >= last) return;
  using Places = std::array<std::int64_t, kOperands>;
  const Axis<kOperands> inner = axes.inner();
  std::array<std::int64_t, Shape::kMaxRank> index{};
  Places outer{};
  const auto move = [](Places& places, const Axis<kOperands>& axis, std::int64_t by) {
    for (std::size_t k = 0; k < kOperands; ++k) places[k] += by * axis.steps[k];
  };
  std::int64_t rest = first / inner.count, start = first % inner.count;
  for (auto d = static_cast<std::size_t>(std::max(axes.count - 1, 0)); d-- > 0;) {
    index[d] = rest % axes.at[d].count;
    rest /= axes.at[d].count;
    move(outer, axes.at[d], index[d]);
  }
  while (true) {
    const std::int64_t count = std::min(inner.count - start, last - first);
    Places places = outer;
    move(places, inner, start);
    body(places, count);
    first += count;
    if (first >= last) return;
    start = 0;
    for (auto d = static_cast<std::size_t>(axes.count - 1); d-- > 0;) {
      if (++index[d] < axes.at[d].count) {
        move(outer, axes.at[d], 1);
        break;
      }
      move(outer, axes.at[d], 1 - axes.at[d].count);
      index[d] = 0;
    }
  }
}

}  // namespace engine::ops
