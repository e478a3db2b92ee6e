// mbarriers (PTX ISA 9.0, "Parallel Synchronization and Communication Instructions: mbarrier") and
// barriers by number.
#include "tests/emulator/ptx/instructions/barriers.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "tests/emulator/ptx/machine/warp.h"

namespace ptx {
namespace {

constexpr std::uint32_t kMaxCount = (1u << 20) - 1;

template <class F>
void each_active(Warp& w, F f) {
  for (unsigned l = 0; l < kLanes; ++l)
    if ((w.mask >> l & 1) != 0) f(l);
}

std::string name_of(std::uint32_t offset) {
  return "the mbarrier at byte " + std::to_string(offset) + " of shared memory";
}

// The phase ends if nothing is pending.
void complete_phase(Cluster& cluster, MBarrier& b) {
  ++cluster.events;
  if (b.pending != 0 || b.bytes != 0) return;
  ++b.phase;
  b.pending = b.expected;
  b.arriving.set(b.agent, b.phase);
  b.done.join(b.arriving);
}

void add_bytes(MBarrier& b, std::uint32_t offset, std::int64_t bytes) {
  b.bytes += bytes;
  if (b.bytes > std::int64_t{kMaxCount} || b.bytes < -std::int64_t{kMaxCount})
    throw Fault(name_of(offset) + " counts " + std::to_string(b.bytes) +
                " bytes: beyond its range of 2^20 - 1");
}

}  // namespace

void release_into(Warp& w, Clock& clock) {
  clock.join(w.clock);
  w.clock.set(w.agent, w.clock.of(w.agent) + 1);
}

std::string describe(const MBarrier& b, std::uint32_t offset) {
  return name_of(offset) + ": phase " + std::to_string(b.phase) + " lacks " +
         std::to_string(b.pending) + " of " + std::to_string(b.expected) + " arrivals and " +
         std::to_string(b.bytes) + " bytes";
}

// It is there, and this warp knows so.
MBarrier& usable_barrier(Warp& w, const SharedPlace& place) {
  const auto found = place.block->mbarriers.find(place.offset);
  if (found == place.block->mbarriers.end())
    throw Fault("there is no mbarrier at byte " + std::to_string(place.offset) +
                " of shared memory: not yet, or no longer (mbarrier.inval)");
  MBarrier& b = found->second;
  if (!b.made.known_to(w.clock) && !b.made.known_to(w.inits))
    throw Fault(name_of(place.offset) +
                " is used before its mbarrier.init is visible: no barrier in between");
  return b;
}

void init_mbarrier(Warp& w, const Instruction& i) {
  const auto* address = w.reg<std::uint32_t>(i.slot[0]);
  const auto* count = w.reg<std::uint32_t>(i.slot[1]);
  each_active(w, [&](unsigned l) {
    const std::uint32_t offset = shared_offset(*w.block, address[l], 8);
    if (count[l] == 0 || count[l] > kMaxCount)
      throw Fault("mbarrier.init with a count of " + std::to_string(count[l]));
    if (w.block->mbarriers.count(offset) != 0)
      throw Fault(name_of(offset) + " is there already: mbarrier.init without mbarrier.inval");
    w.block->history->write(w, offset, 8);
    for (unsigned c = offset / 16; c <= (offset + 7) / 16; ++c)
      if (!w.block->unfenced.empty()) w.block->unfenced[c] = 0;  // it has a flag of its own
    MBarrier& b = w.block->mbarriers[offset];
    b.expected = b.pending = count[l];
    b.agent = w.block->cluster->agents++;
    b.made = {w.agent, w.clock.of(w.agent)};
    w.block->history->set_barrier(offset, true);
  });
}

void invalidate_mbarrier(Warp& w, const Instruction& i) {
  const auto* address = w.reg<std::uint32_t>(i.slot[0]);
  each_active(w, [&](unsigned l) {
    const SharedPlace place{w.block, shared_offset(*w.block, address[l], 8)};
    usable_barrier(w, place);
    w.block->mbarriers.erase(place.offset);
    w.block->history->set_barrier(place.offset, false);
    w.block->history->write(w, place.offset, 8);
  });
}

template <char kForm>
void arrive_mbarrier(Warp& w, const Instruction& i) {
  const auto* address = w.reg<std::uint32_t>(i.slot[1]);
  alignas(64) std::uint64_t state[kLanes] = {};
  Clock before = w.clock;  // all lanes arrive at once
  bool released = false;
  each_active(w, [&](unsigned l) {
    const SharedPlace place = shared_place(w, address[l], 8);
    MBarrier& b = usable_barrier(w, place);
    const std::uint32_t given =
        kForm == 'n' ? 1 : w.reg<std::uint32_t>(i.slot[kForm == 'n' ? 0 : 2])[l];
    const std::uint32_t count = kForm == 'x' ? 1 : given;
    state[l] = std::uint64_t{b.phase} << 32 | b.pending;
    if (kForm == 'x') add_bytes(b, place.offset, given);
    if (count == 0 || count > b.pending)
      throw Fault(name_of(place.offset) + " is arrived at " + std::to_string(count) + " times, " +
                  std::to_string(b.pending) + " of " + std::to_string(b.expected) +
                  " are pending in phase " + std::to_string(b.phase));
    if ((i.immediate & kNoComplete) != 0 && count == b.pending)
      throw Fault(name_of(place.offset) + ": .noComplete, but the phase would end");
    b.pending -= count;
    if ((i.immediate & kDrops) != 0) b.expected -= count;
    if ((i.immediate & kRelaxed) == 0) {
      b.arriving.join(before);
      released = true;
    }
    complete_phase(*w.block->cluster, b);
  });
  if (released) w.clock.set(w.agent, w.clock.of(w.agent) + 1);
  put(w, i.slot[0], state);
}
template void arrive_mbarrier<'n'>(Warp&, const Instruction&);
template void arrive_mbarrier<'c'>(Warp&, const Instruction&);
template void arrive_mbarrier<'x'>(Warp&, const Instruction&);

template <int kSign>
void count_bytes(Warp& w, const Instruction& i) {
  const auto* address = w.reg<std::uint32_t>(i.slot[0]);
  const auto* bytes = w.reg<std::uint32_t>(i.slot[1]);
  each_active(w, [&](unsigned l) {
    const SharedPlace place = shared_place(w, address[l], 8);
    MBarrier& b = usable_barrier(w, place);
    add_bytes(b, place.offset, kSign * std::int64_t{bytes[l]});
    complete_phase(*w.block->cluster, b);
  });
}
template void count_bytes<1>(Warp&, const Instruction&);
template void count_bytes<-1>(Warp&, const Instruction&);

void complete_bytes(Warp& w, const SharedPlace& place, std::uint32_t bytes) {
  const auto found = place.block->mbarriers.find(place.offset);
  if (found == place.block->mbarriers.end())
    throw Fault(name_of(place.offset) + " was invalidated before the copy's bytes came");
  add_bytes(found->second, place.offset, -std::int64_t{bytes});
  complete_phase(*w.block->cluster, found->second);
}

void test_mbarrier(Warp& w, const Instruction& i) {
  const auto* address = w.reg<std::uint32_t>(i.slot[1]);
  alignas(64) std::uint8_t over[kLanes] = {};
  Clock known;
  each_active(w, [&](unsigned l) {
    const SharedPlace place{w.block, shared_offset(*w.block, address[l], 8)};
    const MBarrier& b = usable_barrier(w, place);
    std::uint32_t phase = b.phase;
    if ((i.immediate & kByParity) != 0) {
      const std::uint32_t parity = w.reg<std::uint32_t>(i.slot[2])[l];
      if (parity > 1) throw Fault("a parity of " + std::to_string(parity));
      if ((b.phase & 1) != parity) --phase;
    } else {
      phase = static_cast<std::uint32_t>(w.reg<std::uint64_t>(i.slot[2])[l] >> 32);
      if (phase != b.phase && phase + 1 != b.phase)
        throw Fault(name_of(place.offset) + ": a state of phase " + std::to_string(phase) +
                    ", but it is in phase " + std::to_string(b.phase));
    }
    over[l] = phase != b.phase;
    if (over[l] != 0) {
      if ((i.immediate & kRelaxed) == 0) known.join(b.done);
    } else {
      w.polled = true;
      w.wait_at = place.offset;
      w.wait_phase = phase;
    }
  });
  w.clock.join(known);
  if (std::find(std::begin(over), std::end(over), 1) != std::end(over))
    w.block->lanes->order_warp(w.number);
  put(w, i.slot[0], over);
}

void pending_of_state(Warp& w, const Instruction& i) {
  const auto* state = w.reg<std::uint64_t>(i.slot[1]);
  each_lane<std::uint32_t>(w, i.slot[0],
                           [&](unsigned l) { return static_cast<std::uint32_t>(state[l]); });
}

namespace {

void complete(Block& block, unsigned number) {
  NamedBarrier& b = block.named[number];
  for (Warp& w : block.warps)
    if (w.wait == Wait::kNamed && w.wait_at == number) {
      w.wait = Wait::kNone;
      w.clock.join(b.clock);
      block.lanes->order_warp(w.number);
    }
  b = {};
  ++block.cluster->events;
  if (block.history == nullptr) {  // then barriers are of the whole block
    std::fill(block.readers.begin(), block.readers.end(), std::uint8_t{0});
    std::fill(block.writers.begin(), block.writers.end(), std::uint8_t{0});
    block.lanes->order_block();
  }
}

}  // namespace

void complete_named(Block& block) {
  std::uint32_t living = 0;
  for (const Warp& w : block.warps) living += w.alive != 0 ? kLanes : 0;
  for (unsigned n = 0; n < block.named.size(); ++n)
    if (block.named[n].count == NamedBarrier::kAll && block.named[n].arrived >= living)
      complete(block, n);
}

template <bool kWaits, bool kCounts>
void named_barrier(Warp& w, const Instruction& i) {
  const auto first = static_cast<unsigned>(std::countr_zero(w.mask));
  const std::uint32_t number = w.reg<std::uint32_t>(i.slot[0])[first];
  std::uint32_t count = NamedBarrier::kAll;
  if (kCounts) count = w.reg<std::uint32_t>(i.slot[kCounts ? 1 : 0])[first];
  if (number >= w.block->named.size())
    throw Fault("barrier " + std::to_string(number) + ": there are 16");
  if (kCounts && (count == 0 || count % kLanes != 0 || count > w.block->warps.size() * kLanes))
    throw Fault("a barrier of " + std::to_string(count) + " threads in a block of " +
                std::to_string(w.block->warps.size() * kLanes));
  NamedBarrier& b = w.block->named[number];
  if (b.arrived != 0 && b.count != count)
    throw Fault("barrier " + std::to_string(number) + " is used with several counts at a time");
  b.count = count;
  b.arrived += kLanes;
  if (w.block->history != nullptr) release_into(w, b.clock);
  if (kWaits) {
    w.wait = Wait::kNamed;
    w.wait_at = number;
  }
  if (!kCounts)
    complete_named(*w.block);
  else if (b.arrived == count)
    complete(*w.block, number);
}
template void named_barrier<true, true>(Warp&, const Instruction&);
template void named_barrier<true, false>(Warp&, const Instruction&);
template void named_barrier<false, true>(Warp&, const Instruction&);

void yield_warp(Warp& w, const Instruction&) {
  w.polled = true;
  w.wait_at = w.wait_phase = 0;
}

}  // namespace ptx
