// The places of an element of a loop over axes in each operand. Included by .cu files only.
#pragma once

#include "engine/ops/device/packs.h"
#include "engine/ops/general/axes.h"

namespace engine::ops::cuda {

template <int kOperands>
struct AxisPlaces {
  std::int64_t at[kOperands] = {};
};

// Returns the places, moved by those of element `i` of the axes.
template <int kOperands>
__device__ __forceinline__ AxisPlaces<kOperands> moved(AxisPlaces<kOperands> places,
                                                       const Axes<kOperands>& axes,
                                                       std::int64_t i) {
  for (int d = axes.count - 1; d >= 0; --d) {
    const Axis<kOperands>& axis = axes.at[static_cast<unsigned>(d)];
    const std::int64_t outer = d > 0 ? quotient(i, axis.count) : 0, index = i - outer * axis.count;
    for (unsigned k = 0; k < kOperands; ++k) places.at[k] += index * axis.steps[k];
    i = outer;
  }
  return places;
}
template <int kOperands>
__device__ __forceinline__ AxisPlaces<kOperands> places_of(const Axes<kOperands>& axes,
                                                           std::int64_t i) {
  return moved(AxisPlaces<kOperands>{}, axes, i);
}

}  // namespace engine::ops::cuda
