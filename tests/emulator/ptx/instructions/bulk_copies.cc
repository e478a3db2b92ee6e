// Copies of the copy engine (PTX ISA 9.0, "Data Movement and Conversion Instructions: Bulk copy"
// and "Tensor copy"). What is wrong with one is said when it is issued; its bytes are read and
// written when it lands: as late as allowed, or by chance.
#include "tests/emulator/ptx/instructions/bulk_copies.h"

#include <string>
#include <utility>

#include "tests/emulator/ptx/machine/warp.h"
#include "tests/emulator/runtime/tensor_map.h"

namespace ptx {
namespace {

std::uint32_t slot_of(const Warp& w, const Instruction& i, unsigned n) {
  return n < i.slot.size() ? i.slot[n] : w.block->program->more[i.target + n - i.slot.size()];
}
template <class T>
T operand(Warp& w, const Instruction& i, unsigned n, unsigned lane) {
  return w.reg<T>(slot_of(w, i, n))[lane];
}
template <class F>
void each_active(Warp& w, F f) {
  for (unsigned l = 0; l < kLanes; ++l)
    if ((w.mask >> l & 1) != 0) f(l);
}

void aligned(std::uint64_t value, unsigned to, const char* what) {
  if (value % to != 0)
    throw Fault(std::string("a copy in bulk: ") + what + " " + std::to_string(value) +
                " is not a multiple of " + std::to_string(to));
}

BulkCopy new_copy(Warp& w, const Instruction& i, BulkCopy::Way way, unsigned lane) {
  BulkCopy copy;
  copy.way = way;
  copy.instruction = static_cast<std::uint32_t>(&i - w.block->program->code.data());
  copy.by = &w;
  copy.lane = lane;
  copy.block = w.block;
  copy.group = w.bulk_committed[lane];
  copy.sum = static_cast<BulkCopy::Sum>(i.immediate >> kSumShift & 3);
  return copy;
}

// Its mbarrier, which lies beside what it writes.
void set_barrier(Warp& w, BulkCopy& copy, std::uint64_t address) {
  const SharedPlace place = shared_place(w, address, 8);
  if (place.block != copy.block)
    throw Fault("a copy to another block's shared memory than its mbarrier is in");
  MBarrier& b = usable_barrier(w, place);
  if (!b.fenced)
    throw Fault(
        "a copy counts on an mbarrier that the asynchronous proxy may not see: no "
        "fence.proxy.async or fence.mbarrier_init after mbarrier.init");
  b.arriving.join(w.clock);
  copy.barrier = place.offset;
}

void issue(Warp& w, BulkCopy copy) {
  Block& block = *copy.block;
  for (const BulkCopy::Piece& piece : copy.pieces) {
    if (copy.way == BulkCopy::Way::kToGlobal) {
      check_fenced(block, piece.offset, piece.bytes, "a copy in bulk reads");
      block.history->begin_copy_from(w, piece.offset, piece.bytes);
    } else {
      check_fenced(block, piece.offset, piece.bytes, "a copy in bulk overwrites");
      block.history->begin_copy_to(w, piece.offset, piece.bytes, copy.instruction);
    }
  }
  w.block->cluster->copies.push_back(std::move(copy));
  ++w.block->cluster->events;
}

// The same for each block that a multicast names, or for the one that is addressed.
template <class F>
void each_destination(Warp& w, const Instruction& i, std::uint64_t to, std::uint64_t barrier,
                      unsigned mask_operand, unsigned lane, F issue_one) {
  constexpr std::uint64_t kOffset = (std::uint64_t{1} << kRankShift) - 1;
  if ((i.immediate & kMulticast) == 0) return issue_one(to, barrier);
  const auto mask = operand<std::uint16_t>(w, i, mask_operand, lane);
  const std::size_t blocks = w.block->cluster->blocks.size();
  if (mask == 0 || mask >> blocks != 0)
    throw Fault("a multicast to blocks " + std::to_string(mask) + " (bits) of a cluster of " +
                std::to_string(blocks));
  for (std::uint64_t rank = 0; rank < blocks; ++rank)
    if ((mask >> rank & 1) != 0)
      issue_one((rank + 1) << kRankShift | (to & kOffset),
                (rank + 1) << kRankShift | (barrier & kOffset));
}

// The pieces of a box: [0, bytes) of shared memory from `start` on, each within 16 bytes.
void add_chunk(BulkCopy& copy, std::uint32_t at, std::byte* from, unsigned before, unsigned inside,
               unsigned after) {
  if (before != 0) copy.pieces.push_back({nullptr, at, before});
  if (inside != 0) copy.pieces.push_back({from, at + before, inside});
  if (after != 0) copy.pieces.push_back({nullptr, at + before + inside, after});
}

void add_row(Warp& w, const Instruction& i, BulkCopy& copy, const fake::TensorMap& map,
             std::uint64_t row, bool outside, std::int64_t first, std::uint32_t to) {
  const std::int64_t each = map.element_bytes();
  const auto size = static_cast<std::int64_t>(map.size[0]);
  for (unsigned at = 0; at < map.box[0] * each; at += 16) {
    const std::int64_t x = first + at / each, count = 16 / each;
    const std::int64_t low = std::clamp<std::int64_t>(-x, 0, count),
                       high = std::clamp<std::int64_t>(size - x, 0, count);
    const auto before = static_cast<unsigned>(outside ? 16 : (low >= high ? count : low) * each);
    const auto inside = static_cast<unsigned>(outside || low >= high ? 0 : (high - low) * each);
    std::byte* from = nullptr;
    if (inside != 0)
      from = global_pointer(w, i, row + static_cast<std::uint64_t>((x + low) * each), inside);
    add_chunk(copy, fake::swizzled(map.swizzle, to + at) - kSharedStart, from, before, inside,
              16 - before - inside);
  }
}

void add_box(Warp& w, const Instruction& i, BulkCopy& copy, const fake::TensorMap& map,
             const std::int32_t* place, std::uint32_t offset) {
  unsigned rows = 1;
  for (unsigned d = 1; d < map.rank; ++d) rows *= map.count(d);
  const unsigned pitch = map.box[0] * map.element_bytes();
  shared_offset(*copy.block, offset + kSharedStart, 128);
  copy.bytes = rows * pitch;
  if (offset + copy.bytes > copy.block->shared_bytes)
    throw Fault("a box of " + std::to_string(copy.bytes) + " bytes at byte " +
                std::to_string(offset) + " of " + std::to_string(copy.block->shared_bytes) +
                " of shared memory");
  if (map.swizzle != fake::TensorSwizzle::kNone &&
      pitch != 16u << static_cast<unsigned>(map.swizzle))
    throw Fault("rows of a box that are shorter than its swizzle: not known here");
  for (unsigned row = 0; row < rows; ++row) {
    std::uint64_t address = map.address;
    bool outside = false;
    for (unsigned d = 1, rest = row; d < map.rank; rest /= map.count(d), ++d) {
      const std::int64_t x = place[d] + std::int64_t{rest % map.count(d)} * map.every[d];
      outside |= x < 0 || x >= static_cast<std::int64_t>(map.size[d]);
      address += static_cast<std::uint64_t>(x) * map.stride[d];
    }
    add_row(w, i, copy, map, address, outside, place[0], offset + kSharedStart + row * pitch);
  }
}

fake::TensorMap map_at(Warp& w, const Instruction& i, std::uint64_t address) {
  fake::TensorMap map;
  if (address % 64 != 0) throw Fault("a tensor map that is not aligned to 64 bytes");
  const std::byte* from = nullptr;
  if (address < w.block->program->parameter_bytes)
    from = w.block->parameters + address;
  else
    from = global_pointer(w, i, address, 128);
  std::memcpy(&map, from, sizeof map);
  if (map.magic != fake::TensorMap::kMagic)
    throw Fault("no tensor map at this address: cuTensorMapEncodeTiled makes them");
  const auto rank = static_cast<unsigned>(i.immediate & kRankBits);
  if (rank != map.rank)
    throw Fault("a copy of " + std::to_string(rank) + " dimensions by a tensor map of " +
                std::to_string(map.rank));
  return map;
}

}  // namespace

void bulk_to_shared(Warp& w, const Instruction& i) {
  each_active(w, [&](unsigned l) {
    const auto from = operand<std::uint64_t>(w, i, 1, l);
    const auto bytes = operand<std::uint32_t>(w, i, 2, l);
    aligned(bytes, 16, "its size");
    aligned(from, 16, "the address in global memory");
    each_destination(w, i, operand<std::uint32_t>(w, i, 0, l), operand<std::uint32_t>(w, i, 3, l),
                     4, l, [&](std::uint64_t to, std::uint64_t barrier) {
                       BulkCopy copy = new_copy(w, i, BulkCopy::Way::kToShared, l);
                       aligned(to, 16, "the address in shared memory");
                       const SharedPlace place = shared_place(w, to, bytes);
                       copy.block = place.block;
                       set_barrier(w, copy, barrier);
                       copy.bytes = bytes;
                       copy.pieces = {{global_pointer(w, i, from, bytes), place.offset, bytes}};
                       issue(w, std::move(copy));
                     });
  });
}

void bulk_between_blocks(Warp& w, const Instruction& i) {
  each_active(w, [&](unsigned l) {
    const auto to = operand<std::uint32_t>(w, i, 0, l), from = operand<std::uint32_t>(w, i, 1, l),
               bytes = operand<std::uint32_t>(w, i, 2, l);
    aligned(bytes, 16, "its size");
    aligned(from, 16, "the address in shared memory");
    aligned(to, 16, "the address in shared memory");
    BulkCopy copy = new_copy(w, i, BulkCopy::Way::kBetweenBlocks, l);
    const SharedPlace place = shared_place(w, to, bytes);
    copy.block = place.block;
    set_barrier(w, copy, operand<std::uint32_t>(w, i, 3, l));
    copy.bytes = bytes;
    copy.pieces = {{nullptr, place.offset, bytes}};
    copy.source = w.block;
    copy.source_offset = shared_offset(*w.block, from, bytes);
    check_fenced(*w.block, copy.source_offset, bytes, "a copy in bulk reads");
    w.block->history->begin_copy_from(w, copy.source_offset, bytes);
    issue(w, std::move(copy));
  });
}

void bulk_to_global(Warp& w, const Instruction& i) {
  each_active(w, [&](unsigned l) {
    const auto to = operand<std::uint64_t>(w, i, 0, l);
    const auto from = operand<std::uint32_t>(w, i, 1, l),
               bytes = operand<std::uint32_t>(w, i, 2, l);
    aligned(bytes, 16, "its size");
    aligned(to, 16, "the address in global memory");
    aligned(from, 16, "the address in shared memory");
    BulkCopy copy = new_copy(w, i, BulkCopy::Way::kToGlobal, l);
    copy.bytes = bytes;
    copy.pieces = {{global_pointer(w, i, to, bytes), shared_offset(*w.block, from, bytes), bytes}};
    issue(w, std::move(copy));
  });
}

void tensor_to_shared(Warp& w, const Instruction& i) {
  const auto rank = static_cast<unsigned>(i.immediate & kRankBits);
  each_active(w, [&](unsigned l) {
    const fake::TensorMap map = map_at(w, i, operand<std::uint64_t>(w, i, 1, l));
    std::int32_t at[5] = {};
    for (unsigned d = 0; d < rank; ++d) at[d] = operand<std::int32_t>(w, i, 2 + d, l);
    each_destination(w, i, operand<std::uint32_t>(w, i, 0, l),
                     operand<std::uint32_t>(w, i, 2 + rank, l), 3 + rank, l,
                     [&](std::uint64_t to, std::uint64_t barrier) {
                       BulkCopy copy = new_copy(w, i, BulkCopy::Way::kToShared, l);
                       const SharedPlace place = shared_place(w, to, 128);
                       copy.block = place.block;
                       set_barrier(w, copy, barrier);
                       add_box(w, i, copy, map, at, place.offset);
                       issue(w, std::move(copy));
                     });
  });
}

void tensor_to_global(Warp& w, const Instruction& i) {
  const auto rank = static_cast<unsigned>(i.immediate & kRankBits);
  each_active(w, [&](unsigned l) {
    const fake::TensorMap map = map_at(w, i, operand<std::uint64_t>(w, i, 0, l));
    std::int32_t at[5] = {};
    for (unsigned d = 0; d < rank; ++d) at[d] = operand<std::int32_t>(w, i, 1 + d, l);
    BulkCopy copy = new_copy(w, i, BulkCopy::Way::kToGlobal, l);
    if (copy.sum != BulkCopy::Sum::kNone) {
      if (map.element == fake::TensorElement::kF32)
        copy.sum = BulkCopy::Sum::kF32;
      else if (map.element == fake::TensorElement::kInteger && map.element_bytes() == 4)
        copy.sum = BulkCopy::Sum::kU32;
      else
        throw Fault("a sum of elements of this type: not known here");
    }
    add_box(w, i, copy, map, at,
            shared_offset(*w.block, operand<std::uint32_t>(w, i, 1 + rank, l), 128));
    issue(w, std::move(copy));
  });
}

}  // namespace ptx
