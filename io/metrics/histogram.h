// How the numbers of a tensor are distributed, in buckets that grow with the magnitude: eight to
// each power of two, so that a bucket is found from the bits of a number.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace io {

struct Histogram {
  double min = 0, max = 0, sum = 0, sum_squares = 0;
  std::int64_t count = 0;    // of finite numbers; all else here is of them, too
  std::int64_t skipped = 0;  // NaN and infinities
  // Ascending; a bucket ends with its limit and begins with the one before it. Empty ones are only
  // there where a further bucket has to begin.
  std::vector<double> limits, counts;
};

Histogram histogram_of(std::span<const float> values);
Histogram histogram_of(std::span<const double> values);

}  // namespace io
