// Places blocks of memory that live for known spans of time into one arena.
#pragma once

#include <cstddef>
#include <vector>

namespace engine {

// Needed from time `first` to time `last`, both included. Two blocks that share a time must not
// share memory.
struct MemoryBlock {
  std::size_t bytes = 0;
  int first = 0, last = 0;
  std::size_t offset = 0;  // the result; a multiple of kAlignment
};

// Sets every block's offset; returns the bytes of the arena. The same for the same blocks in every
// run.
std::size_t place_blocks(std::vector<MemoryBlock>& blocks);

}  // namespace engine
