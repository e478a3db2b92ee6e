// The numbers that resizing reads along one axis, as PyTorch's interpolate with
// align_corners=False.
#pragma once

#include <cstdint>

namespace engine::ops {

struct ResizeAxis {
  std::int64_t in = 1, out = 1;
  double scale = 1;  // in / out, or the reciprocal of a given factor
  bool linear = false;

  // Output `o` is (1 - weight) x[low] + weight x[high].
  struct Taps {
    std::int64_t low, high;
    double weight;
  };
  constexpr Taps taps(std::int64_t o) const {
    // A nearest place that is a whole number may come out a rounding below it.
    const double place = linear ? (static_cast<double>(o) + 0.5) * scale - 0.5
                                : static_cast<double>(o) * scale + 1e-9;
    const auto whole = place > 0 ? static_cast<std::int64_t>(place) : 0,
               low = whole < in ? whole : in - 1, high = low + 1 < in ? low + 1 : low;
    const bool is_between = linear && place > 0 && high > low;
    return {low, high, is_between ? place - static_cast<double>(low) : 0.0};
  }
  // The factor of x[i] in output `o`.
  constexpr double weight(std::int64_t o, std::int64_t i) const {
    const Taps t = taps(o);
    return (t.low == i ? 1 - t.weight : 0) + (t.high == i ? t.weight : 0);
  }
  // All outputs that read x[i] are in [first_reader(i), last_reader(i)].
  constexpr std::int64_t first_reader(std::int64_t i) const {
    const auto first = static_cast<std::int64_t>((static_cast<double>(i) - 1) / scale) - 1;
    return first > 0 ? first : 0;
  }
  constexpr std::int64_t last_reader(std::int64_t i) const {
    const auto last = static_cast<std::int64_t>((static_cast<double>(i) + 1.5) / scale) + 1;
    return last < out - 1 ? last : out - 1;
  }
};

}  // namespace engine::ops
