// Greedy by size, best fit: places large blocks first, each into the smallest sufficient gap
// between blocks that are already placed and live at the same time. Method: Pisarchyk and Lee,
// "Efficient memory management for deep neural net inference", 2020 (arXiv 2001.03288), their
// "greedy by size for offset calculation".
//
// A block can be seen as a rectangle: its lifetime is the width, its bytes are the height, and its
// offset is the vertical position. Rectangles must not overlap, and the total height should be
// small. Finding the optimum is NP-hard (dynamic storage allocation). Placing large blocks first
// leaves gaps that small ones fill; placed in order of time, a small block with a long lifetime
// would fragment the arena. Only blocks that share a time constrain each other, so the search for
// gaps skips all others.
//
// Each block is compared with all before it. To keep the time for very deep models linear, blocks
// beyond kMaxJointBlocks are placed by the same rule among themselves, in a region after the
// others.
#include "engine/graph/memory/memory_layout.h"

#include <algorithm>
#include <numeric>

#include "engine/core/arena.h"

namespace engine {
namespace {

constexpr std::size_t kMaxJointBlocks = 4096;  // practical models have fewer blocks

// A block that has been placed. They are stored contiguously, because each further block is
// compared with all of them.
struct PlacedBlock {
  std::size_t offset = 0, end = 0;
  int first = 0, last = 0, early_first = 0, early_last = -1;
};

bool share_time(const MemoryBlock& a, const PlacedBlock& b) {
  const auto overlap = [](int first, int last, int other_first, int other_last) {
    return first <= last && other_first <= other_last && first <= other_last && other_first <= last;
  };
  return (a.first <= b.last && b.first <= a.last) ||
         overlap(a.early_first, a.early_last, b.first, b.last) ||
         overlap(a.first, a.last, b.early_first, b.early_last) ||
         overlap(a.early_first, a.early_last, b.early_first, b.early_last);
}

// `placed` is sorted by offset.
std::size_t best_offset(const MemoryBlock& block, const std::vector<PlacedBlock>& placed) {
  constexpr auto kNone = static_cast<std::size_t>(-1);
  std::size_t end = 0, best = kNone, best_gap = kNone;
  for (const PlacedBlock& other : placed) {
    if (!share_time(block, other)) continue;
    if (other.offset >= end) {
      const std::size_t gap = other.offset - end;
      if (gap >= block.bytes && gap < best_gap) {
        best = end;
        best_gap = gap;
      }
    }
    end = std::max(end, other.end);
  }
  return best == kNone ? end : best;
}

}  // namespace

std::size_t place_blocks(std::vector<MemoryBlock>& blocks) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  std::vector<PlacedBlock> placed;  // offsets within the region
  std::size_t arena = 0, region = 0;
  for (const std::size_t i : order) {
    if (placed.size() == kMaxJointBlocks) {
      placed.clear();
      region = arena;
    }
    const std::size_t offset = best_offset(blocks[i], placed);
    const PlacedBlock made{.offset = offset,
                           .end = offset + align_up(blocks[i].bytes),
                           .first = blocks[i].first,
                           .last = blocks[i].last,
                           .early_first = blocks[i].early_first,
                           .early_last = blocks[i].early_last};
    blocks[i].offset = region + offset;
    arena = std::max(arena, region + made.end);
    const auto by_offset = [](const PlacedBlock& a, const PlacedBlock& b) {
      return a.offset < b.offset;
    };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), made, by_offset), made);
  }
  return arena;
}

}  // namespace engine
