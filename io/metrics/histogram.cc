// Makes one pass: each number is counted in a bucket found from its exponent and the leading bits
// of its mantissa.
#include "io/metrics/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace io {
namespace {

// Magnitudes below 2^-40 count as zero (as in TensorFlow's histograms, which start at 1e-12), those
// from 2^64 on are counted in the last bucket.
constexpr int kLowest = -40, kHighest = 64, kParts = 8;
constexpr int kSide = (kHighest - kLowest) * kParts;  // number of buckets for positive numbers

// Returns the bucket of a positive number's magnitude; -1: zero.
int bucket_of(double magnitude) {
  const auto bits = std::bit_cast<std::uint64_t>(magnitude);
  const int exponent = static_cast<int>(bits >> 52) - 1023,
            part = static_cast<int>((bits >> 49) & 7);
  if (exponent < kLowest) return -1;
  return std::min((exponent - kLowest) * kParts + part, kSide - 1);
}

// Returns the start of bucket i of the positive numbers.
double begin_of(int i) { return std::ldexp(1 + (i % kParts) / 8.0, kLowest + i / kParts); }

template <class T>
Histogram histogram(std::span<const T> values) {
  Histogram h;
  std::vector<std::int64_t> counts(2 * kSide + 1);  // negative numbers, zero, positive numbers
  h.min = std::numeric_limits<double>::infinity();
  h.max = -h.min;
  for (const T value : values) {
    const double v = static_cast<double>(value);
    if (!std::isfinite(v)) {
      ++h.skipped;
      continue;
    }
    h.min = std::min(h.min, v);
    h.max = std::max(h.max, v);
    h.sum += v;
    h.sum_squares += v * v;
    const int bucket = bucket_of(std::abs(v)) + 1;
    ++counts[static_cast<std::size_t>(kSide + (v < 0 ? -bucket : bucket))];
  }
  h.count = static_cast<std::int64_t>(values.size()) - h.skipped;
  if (h.count == 0) {
    h.min = h.max = 0;
    return h;
  }
  // Bucket i of `counts` is between edge(i) and edge(i + 1).
  const auto edge = [](int i) {
    return i <= kSide ? -begin_of(kSide - i) : begin_of(i - kSide - 1);
  };
  for (int i = 0; i < static_cast<int>(counts.size()); ++i) {
    const std::int64_t n = counts[static_cast<std::size_t>(i)];
    if (n == 0) continue;
    if (h.limits.empty() || h.limits.back() < edge(i)) {
      h.limits.push_back(edge(i));
      h.counts.push_back(0);
    }
    h.limits.push_back(edge(i + 1));
    h.counts.push_back(static_cast<double>(n));
  }
  return h;
}

}  // namespace

Histogram histogram_of(std::span<const float> values) { return histogram(values); }
Histogram histogram_of(std::span<const double> values) { return histogram(values); }

}  // namespace io
