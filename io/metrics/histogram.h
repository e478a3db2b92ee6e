// The distribution of a tensor's numbers in buckets that grow with the magnitude: eight for each
// power of two, so that the bits of a number give its bucket.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace io {

struct Histogram {
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  std::int64_t count = 0;    // number of finite values; all other members refer to these as well
  std::int64_t skipped = 0;  // NaN and infinities
  // Ascending; a bucket ends at its limit and starts at the previous one. Empty buckets are
  // included only to mark the start of the next one.
  std::vector<double> limits, counts;
};

Histogram histogram_of(std::span<const float> values);
Histogram histogram_of(std::span<const double> values);

}  // namespace io
