// Test data for collectives whose correct result is known without a collective: periodic in the
// element's index.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backends/communicator.h"

namespace tools {

// A rank's values are small whole numbers, so that sums in any order are exact in every type, half
// precision included.
class CommPattern {
 public:
  // Prime: no chunk with a power of two of elements looks like its neighbor.
  static constexpr std::size_t kPeriod = 1021;
  // Further ranks contribute zeros to reductions: bfloat16 counts exactly only to 256.
  static constexpr int kSummands = 25;

  CommPattern(base::DType type, int ranks);

  // Writes `count` elements of rank `rank` in round `round`, from element `first` on. `reduced`:
  // true for the input of a reduction.
  void fill(void* data, std::size_t count, int rank, std::size_t round, bool reduced) const;
  // Returns true if `data` is that rank's data (rank >= 0), or the sum over all ranks (kSum), of
  // elements first to first + count. `all`: compares every byte; else the first and last kilobytes
  // and samples between them.
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
