// How copies in bulk land, and how groups of them are waited for.
#include <string>
#include <utility>

#include "tests/emulator/ptx/instructions/bulk_copies.h"
#include "tests/emulator/ptx/machine/warp.h"

namespace ptx {
namespace {

void write_sum(BulkCopy::Sum sum, std::byte* to, const std::byte* from, std::uint32_t bytes) {
  const auto add = [&]<class T>(T) {
    for (std::uint32_t at = 0; at < bytes; at += sizeof(T)) {
      T a, b;
      std::memcpy(&a, to + at, sizeof a);
      std::memcpy(&b, from + at, sizeof b);
      a = static_cast<T>(a + b);
      std::memcpy(to + at, &a, sizeof a);
    }
  };
  if (sum == BulkCopy::Sum::kF32) return add(0.0f);
  if (sum == BulkCopy::Sum::kU32) return add(std::uint32_t{0});
  if (sum == BulkCopy::Sum::kU64) return add(std::uint64_t{0});
  std::memcpy(to, from, bytes);
}

// To global memory, first half: shared memory is read and may be overwritten.
void read_source(BulkCopy& copy) {
  if (std::exchange(copy.has_read, true)) return;
  for (const BulkCopy::Piece& piece : copy.pieces) {
    const std::byte* from = copy.block->shared + piece.offset;
    copy.data.insert(copy.data.end(), from, from + piece.bytes);
    copy.block->history->end_copy_from(piece.offset, piece.bytes);
    if (copy.by->alive != 0) copy.block->history->read(*copy.by, piece.offset, piece.bytes);
  }
}

void write_global(BulkCopy& copy) {
  read_source(copy);
  std::size_t at = 0;
  for (const BulkCopy::Piece& piece : copy.pieces) {
    if (piece.global != nullptr)
      write_sum(copy.sum, piece.global, copy.data.data() + at, piece.bytes);
    at += piece.bytes;
  }
}

void write_shared(BulkCopy& copy) {
  Block& block = *copy.block;
  if (block.ended()) throw Fault("a copy into the shared memory of a block that has ended");
  const auto barrier = block.mbarriers.find(copy.barrier);
  if (barrier == block.mbarriers.end()) throw Fault("the mbarrier of a copy under way is gone");
  const Stamp stamp{barrier->second.agent, barrier->second.phase + 1};
  std::uint32_t done = 0;
  for (const BulkCopy::Piece& piece : copy.pieces) {
    std::byte* to = block.shared + piece.offset;
    if (copy.source != nullptr) {
      std::memcpy(to, copy.source->shared + copy.source_offset + done, piece.bytes);
      copy.source->history->end_copy_from(copy.source_offset + done, piece.bytes);
    } else if (piece.global == nullptr) {
      std::memset(to, 0, piece.bytes);
    } else {
      std::memcpy(to, piece.global, piece.bytes);
    }
    block.history->end_copy_to(stamp, piece.offset, piece.bytes);
    done += piece.bytes;
  }
  complete_bytes(*copy.by, {&block, copy.barrier}, copy.bytes);
}

}  // namespace

void land(Cluster& cluster, std::size_t number) {
  BulkCopy copy = std::move(cluster.copies[number]);
  cluster.copies.erase(cluster.copies.begin() + static_cast<std::ptrdiff_t>(number));
  ++cluster.events;
  try {
    if (copy.way == BulkCopy::Way::kToGlobal)
      write_global(copy);
    else
      write_shared(copy);
  } catch (const Fault& fault) {
    const Program& program = *copy.block->program;
    throw Fault(program.where(copy.instruction) + ": " + fault.what() + " (" + program.name + ")");
  }
}

void finish_copies(Cluster& cluster) {
  while (!cluster.copies.empty()) land(cluster, 0);
}

void check_copies_at_end(Warp& w, Mask lanes) {
  for (const BulkCopy& copy : w.block->cluster->copies)
    if (copy.by == &w && (lanes >> copy.lane & 1) != 0 && copy.way == BulkCopy::Way::kToGlobal &&
        !copy.has_read)
      throw Fault("a thread ends while its copy of " + w.block->program->where(copy.instruction) +
                  " still reads shared memory");
}

void commit_bulk(Warp& w, const Instruction&) {
  for (unsigned l = 0; l < kLanes; ++l) w.bulk_committed[l] += w.mask >> l & 1;
}

template <bool kReadOnly>
void wait_bulk(Warp& w, const Instruction& i) {
  const auto pending = static_cast<std::uint32_t>(i.immediate);
  auto& copies = w.block->cluster->copies;
  for (std::size_t n = 0; n < copies.size();) {
    BulkCopy& copy = copies[n];
    const bool waited = copy.by == &w && (w.mask >> copy.lane & 1) != 0 &&
                        copy.way == BulkCopy::Way::kToGlobal &&
                        copy.group + pending < w.bulk_committed[copy.lane];
    if (waited && kReadOnly) read_source(copy);
    if (waited && !kReadOnly)
      land(*w.block->cluster, n);
    else
      ++n;
  }
}
template void wait_bulk<true>(Warp&, const Instruction&);
template void wait_bulk<false>(Warp&, const Instruction&);

}  // namespace ptx
