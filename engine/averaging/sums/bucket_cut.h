// Divides a flat gradient buffer into buckets, for sums on the host and on devices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace engine {

struct BucketOptions {
  std::int64_t bytes = 25 << 20;  // size of a bucket; the first one has at most 1 MiB
  bool overlap = true;  // false: sum all buckets after backward; they are the same, so the bits are
                        // as well
  std::int64_t multiple = 1;  // every bucket but the last is a multiple of this, in elements
};

// Returns the end of each bucket (one past its last element), ascending, for a buffer of `size`
// elements. The first bucket is small so that communication starts early, as in PyTorch's reducer.
inline std::vector<std::int64_t> bucket_ends(std::int64_t size, std::size_t element_bytes,
                                             std::int64_t bucket_bytes, std::int64_t multiple = 1) {
  constexpr std::int64_t kFirstBytes = 1 << 20;
  const auto elements = [=](std::int64_t bytes) {
    const std::int64_t fit = bytes / static_cast<std::int64_t>(element_bytes);
    return std::max(multiple, fit / multiple * multiple);
  };
  std::vector<std::int64_t> ends;
  for (std::int64_t end = 0; end < size; ends.push_back(end))
    end = std::min(
        size, end + elements(ends.empty() ? std::min(bucket_bytes, kFirstBytes) : bucket_bytes));
  return ends;
}

}  // namespace engine
