// What runs: a block's warps, each with a register file; and the helpers that instructions are
// written with.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>

#include "tests/emulator/ptx/decode/ptx_program.h"
#include "tests/emulator/ptx/machine/cluster.h"
#include "tests/emulator/ptx/machine/lane_order.h"
#include "tests/emulator/simt/simt.h"

// A warp's lanes are vectors of the processor's, and fma an instruction. Only what is defined from
// here on is compiled for it (can_run() asks for it), none of the library's functions, which the
// linker may merge with those of other files.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC target("avx2,fma")
#define PTX_NEEDS_AVX2 1
#endif

namespace ptx {

struct Block;

// Lanes at the same place. Waiting: at an instruction that needs lanes which are elsewhere.
// Polled: what it asked for has not happened; others come first.
struct Group {
  std::uint32_t at;
  Mask lanes;
  bool waiting, polled;
};

// cp.async of a warp: for each lane the copy, and the number of the group that it belongs to.
struct PendingCopy {
  Mask lanes;
  std::uint32_t bytes, instruction;
  std::uint32_t to[kLanes];  // from the start of shared memory
  const std::byte* from[kLanes];
  std::uint8_t valid[kLanes];
  std::uint32_t group[kLanes];
};

struct PendingProduct {
  const Instruction* instruction;
  std::uint64_t a, b;
  bool add;
  std::uint32_t group;
  std::vector<float> result;                    // as it was when it was issued
  void (*check)(Warp&, const PendingProduct&);  // that it still is
};

struct Warp {
  std::byte* registers = nullptr;
  Mask mask = 0;  // the lanes that the current instruction is run for
  Block* block = nullptr;
  unsigned number = 0;

  Mask alive = 0, active = 0;  // active: of the group that runs
  std::uint32_t at = 0;        // its place
  std::vector<Group> others;

  // What it waits for (for kNamed: at barrier `wait_at`; for kPoll, while it goes on asking: at the
  // mbarrier `wait_at`, for `wait_phase`).
  Wait wait = Wait::kNone;
  std::uint32_t wait_at = 0, wait_phase = 0, wait_instruction = 0;
  bool polled = false;  // the instruction that just ran asked in vain

  std::uint32_t agent = 0;
  Clock clock;
  Clock inits, fenced_inits;           // mbarrier.init made visible by fence.mbarrier_init alone
  Clock cluster_clock, cluster_inits;  // from barrier.cluster, for its wait
  bool at_cluster_barrier = false, cluster_arrived = false;
  std::uint32_t bulk_committed[kLanes] = {};
  std::uint32_t registers_each = 0;             // of a thread, as setmaxnreg has it
  std::vector<std::uint32_t> register_changes;  // instructions

  std::vector<std::unique_ptr<PendingCopy>> copies, spare_copies;
  std::uint32_t committed[kLanes] = {};

  // wgmma
  std::vector<PendingProduct> products;
  std::vector<float> sums;  // what the accumulators of products under way really hold
  std::uint32_t product_groups = 0;
  std::uint64_t products_issued = 0;
  bool fenced = false;

  template <class T>
  T* reg(std::uint32_t slot) {
    return reinterpret_cast<T*>(registers + slot);
  }
};

struct Block {
  const Program* program = nullptr;
  const std::byte* parameters = nullptr;
  std::byte* shared = nullptr;
  std::uint32_t shared_bytes = 0;
  std::vector<simt::DeviceRange>* ranges = nullptr;  // by instruction: where it found its memory
  std::mt19937* random = nullptr;
  bool eager = false;  // copies and products may arrive before they are waited for
  std::vector<Warp> warps;

  Cluster* cluster = nullptr;
  unsigned rank = 0;
  simt::Index here;
  std::array<NamedBarrier, 16> named;
  std::unique_ptr<History> history;  // of kernels that need it, in place of `readers` and `writers`
  std::map<std::uint32_t, MBarrier> mbarriers;  // by offset
  std::uint32_t free_registers = 0;
  // When each warp of other blocks last used this one's shared memory, and what its own knew when
  // they ended.
  std::vector<std::uint32_t> used_from_outside;
  Clock at_end;

  bool ended() const {
    return std::all_of(warps.begin(), warps.end(), [](const Warp& w) { return w.alive == 0; });
  }

  // Shared memory by 16 bytes: the warp (+ 1) that wrote there without a proxy fence since.
  std::vector<std::uint8_t> unfenced;
  struct Product {
    std::uint32_t instruction;
    std::uint64_t a, b;
  };
  std::vector<std::vector<Product>> products;  // by warpgroup, in order of issue

  // Who touched shared memory since the last barrier, by byte: 0 nobody, warp + 1, kMany.
  static constexpr std::uint8_t kMany = 255;
  std::vector<std::uint8_t> readers, writers;
  LaneOrder* lanes = nullptr;
};

// Results of the masked lanes.
template <class T>
inline void put(Warp& w, std::uint32_t slot, const T* result) {
  T* to = w.reg<T>(slot);
  if (w.mask == kAllLanes) {
    std::memcpy(to, result, kLanes * sizeof(T));
    return;
  }
  const Mask mask = w.mask;
  for (unsigned l = 0; l < kLanes; ++l) to[l] = (mask >> l & 1) != 0 ? result[l] : to[l];
}
template <class T, class F>
inline void each_lane(Warp& w, std::uint32_t slot, F f) {
  alignas(64) T result[kLanes];
  for (unsigned l = 0; l < kLanes; ++l) result[l] = f(l);
  put(w, slot, result);
}

// The bits of a predicate's 32 bytes.
inline Mask mask_of(const std::uint8_t* predicate) {
  Mask mask = 0;
  for (unsigned i = 0; i < 4; ++i) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, predicate + 8 * i, 8);
    eight &= 0x0101010101010101u;  // lanes that never wrote it may have anything
    mask |= static_cast<Mask>((eight * 0x0102040810204080u) >> 56) << (8 * i);
  }
  return mask;
}

// Of `bytes` of shared memory at an address of its space; faults where it is beyond or unaligned.
std::uint32_t shared_offset(const Block& block, std::uint64_t address, unsigned bytes);
// The same of global memory.
std::byte* global_pointer(Warp& w, const Instruction& i, std::uint64_t address, unsigned bytes);
// Notes accesses of shared memory, and faults where another warp's access is not ordered by a
// barrier, or another lane's by one of the warp.
void note_read(Warp& w, unsigned lane, std::uint32_t offset, unsigned bytes);
void note_write(Warp& w, unsigned lane, std::uint32_t offset, unsigned bytes);
// Faults where the asynchronous proxy would miss what was written by the generic one.
void check_fenced(const Block& block, std::uint32_t offset, unsigned bytes, const char* does);

}  // namespace ptx
