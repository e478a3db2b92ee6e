// Test data for collectives whose right result is known without computing it by the collective:
// periodic in the element's index.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backends/communicator.h"

namespace tools {

// A rank's values are small whole numbers, so that sums of any order are exact in every type, half
// precision included.
class CommPattern {
 public:
  static constexpr std::size_t kPeriod =
      1021;  // prime: no chunk of a power of two looks like its neighbor
  static constexpr int kSummands =
      25;  // further ranks bring zeros into reductions: bfloat16 counts exactly to 256 only

  CommPattern(base::DType type, int ranks);

  // `count` elements of rank `rank` in round `round`, from element `first` on. `reduced`: as
  // brought into a reduction.
  void fill(void* data, std::size_t count, int rank, std::size_t round, bool reduced) const;
  // Whether `data` is that rank's data (rank >= 0), or the sum over all ranks (kSum), of elements
  // first to first + count. `all`: every byte; else the first and last kilobytes and samples
  // between.
  static constexpr int kSum = -1;
  bool matches(const void* data, std::size_t first, std::size_t count, int rank, std::size_t round,
               bool all) const;

 private:
  const std::vector<std::byte>& table(int rank, bool reduced) const;

  std::size_t element_;                         // bytes
  std::vector<std::vector<std::byte>> tables_;  // by rank, a few periods long each
  std::vector<std::byte> zeros_, sum_;
};

}  // namespace tools
