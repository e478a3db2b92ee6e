// How a flat gradient buffer is cut into buckets, on the host and on devices alike.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace engine {

struct BucketOptions {
  std::int64_t bytes = 25 << 20;  // of a bucket; the first one has 1 MiB at most
  bool overlap = true;  // false: all buckets after backward; the same buckets, hence the same bits
  std::int64_t multiple = 1;  // of so many elements is every bucket but the last one
};

// One past each bucket's last element, ascending, for a buffer of `size` elements. A small first
// bucket starts the wire early, as PyTorch's reducer has it.
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
