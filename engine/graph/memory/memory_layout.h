// Places memory blocks with known lifetimes into one arena.
#pragma once

#include <cstddef>
#include <vector>

namespace engine {

// A block that is needed from time `first` to time `last`, both included, and possibly also in an
// earlier period. Two blocks that share a time must not share memory.
struct MemoryBlock {
  std::size_t bytes = 0;
  int first = 0, last = 0;
  std::size_t offset = 0;                // the result; a multiple of kAlignment
  int early_first = 0, early_last = -1;  // the earlier period; none if it ends before it begins

  bool has_early() const { return early_first <= early_last; }
};

// Sets every block's offset; returns the size of the arena in bytes. The result is deterministic.
std::size_t place_blocks(std::vector<MemoryBlock>& blocks);

}  // namespace engine
