// The digests of a checkpoint's arrays, computed by blocks, which threads check in any order (ADR
// 40).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint_format.h"

namespace io::format {

// The digest of `data` in version 4: the digest of the digests of its blocks, in order.
Digest digest_by_blocks(std::span<const std::byte> data, std::uint64_t block_bytes);

// Collects the digests of the blocks of each array. For one thread at a time.
class BlockDigests {
 public:
  explicit BlockDigests(const std::vector<Placement>& placements);

  void set(std::size_t array, std::uint64_t block, const Digest& digest) {
    blocks_[array][block] = digest;
  }
  bool has(std::size_t array, std::uint64_t block) const {
    return blocks_[array][block].has_value();
  }
  std::uint64_t count(std::size_t array) const { return blocks_[array].size(); }
  // Returns true if all blocks together have the digest in the header. REQUIRES: all are set.
  bool match(std::size_t array, const Placement& placement) const;

 private:
  std::vector<std::vector<std::optional<Digest>>> blocks_;
};

// Reads a whole file of version 1 to 3 in order and checks the digests of its arrays and its own.
// Throws DataError, which names the first damaged array.
void check_whole_file(const ByteSource& file, const Head& head);

}  // namespace io::format
