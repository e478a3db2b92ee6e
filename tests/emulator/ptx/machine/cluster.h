// What the blocks of a cluster have in common, and what warps wait for. A kernel without clusters
// has clusters of one block.
#pragma once

#include <deque>
#include <map>

#include "tests/emulator/ptx/decode/ptx_program.h"
#include "tests/emulator/ptx/machine/access_history.h"
#include "tests/emulator/simt/simt.h"

namespace ptx {

struct Block;
struct Warp;

// PTX ISA 9.0, "mbarrier". A phase is over when nothing is pending: neither arrivals nor bytes.
struct MBarrier {
  std::uint32_t expected = 0, pending = 0;
  std::int64_t bytes = 0;  // the tx-count
  std::uint32_t phase = 0;
  std::uint32_t agent = 0;
  Clock arriving, done;  // what the arrivals of this phase and of those before knew
  Stamp made;            // mbarrier.init
  bool fenced = false;   // ... which the asynchronous proxy may see
};

// bar.sync and bar.arrive of one number.
struct NamedBarrier {
  std::uint32_t count = 0, arrived = 0;  // threads; a count of kAll: of all that have not ended
  static constexpr std::uint32_t kAll = ~0u;
  Clock clock;
};

// A copy by the copy engine, or a part of it for one block.
struct BulkCopy {
  enum class Way : std::uint8_t { kToShared, kToGlobal, kBetweenBlocks } way = Way::kToShared;
  enum class Sum : std::uint8_t { kNone, kF32, kU32, kU64 } sum = Sum::kNone;
  struct Piece {
    std::byte* global;     // null: outside of the tensor
    std::uint32_t offset;  // of shared memory
    std::uint32_t bytes;
  };
  std::vector<Piece> pieces;
  std::uint32_t bytes = 0;
  std::uint32_t instruction = 0;
  Warp* by = nullptr;
  unsigned lane = 0;
  std::uint32_t group = 0;
  Block* block = nullptr;  // whose shared memory `pieces` are of
  Block* source = nullptr;
  std::uint32_t source_offset = 0;
  std::uint32_t barrier = 0;  // in `block`
  bool has_read = false;      // to global memory: what is to be written is in `data`
  std::vector<std::byte> data;
};

struct Cluster {
  std::vector<Block*> blocks;  // by rank
  simt::Index shape;
  std::uint32_t agents = 0;  // warps, then mbarriers
  std::uint64_t events = 0;  // whatever may end somebody's waiting
  std::deque<BulkCopy> copies;
  // barrier.cluster
  Clock clock, inits;

  unsigned warps() const;
};

// The times of a warp's clock: before anything that it does, and of the first things.
constexpr std::uint32_t kStarted = 1, kFirst = 2;

// Why a warp does not go on.
enum class Wait : std::uint8_t { kNone, kNamed, kCluster, kRegisters, kPoll };

void release_into(Warp& w, Clock& clock);
// Shared memory by its address in the cluster: (rank + 1) << kRankShift beyond the block's own.
constexpr unsigned kRankShift = 24;
struct SharedPlace {
  Block* block;
  std::uint32_t offset;
};
SharedPlace shared_place(Warp& w, std::uint64_t address, unsigned bytes);

// barriers.cc
void complete_named(Block& block);  // those for all threads, of which some may have ended
MBarrier& usable_barrier(Warp& w, const SharedPlace& place);
void complete_bytes(Warp& w, const SharedPlace& place, std::uint32_t bytes);
std::string describe(const MBarrier& barrier, std::uint32_t offset);
// landing.cc
void land(Cluster& cluster, std::size_t copy);
void finish_copies(Cluster& cluster);  // when all blocks have ended
void check_copies_at_end(Warp& w, Mask lanes);
// clusters.cc
void complete_cluster_barrier(Cluster& cluster);
void check_block_end(Block& block);
// What keeps the warps, for a report.
std::string deadlock_text(const Cluster& cluster);

}  // namespace ptx
