// Clusters (PTX ISA 9.0: mapa, barrier.cluster, fence.mbarrier_init, shared::cluster), elect.sync,
// setmaxnreg, and what is said of warps that wait for ever.
#include "tests/emulator/ptx/instructions/clusters.h"

#include <string>
#include <utility>

#include "tests/emulator/ptx/machine/warp.h"

namespace ptx {

unsigned Cluster::warps() const {
  return static_cast<unsigned>(blocks.size() * blocks.front()->warps.size());
}

namespace {

// It has to run already, and not to have ended when it is used; both as far as `w` can know.
void use_from_outside(Warp& w, Block& block) {
  const std::string whose =
      "shared memory of block " + std::to_string(block.rank) + " of the cluster is used ";
  if (block.ended()) throw Fault(whose + "after that block has ended");
  const bool met = std::any_of(block.warps.begin(), block.warps.end(),
                               [&](const Warp& other) { return w.clock.of(other.agent) != 0; });
  if (!met)
    throw Fault(whose + "before it is known to have started: no barrier of the cluster before");
  block.used_from_outside[w.agent] = w.clock.of(w.agent);
}

}  // namespace

SharedPlace shared_place(Warp& w, std::uint64_t address, unsigned bytes) {
  const std::uint64_t rank = address >> kRankShift;
  if (rank == 0) return {w.block, shared_offset(*w.block, address, bytes)};
  Cluster& cluster = *w.block->cluster;
  if (rank > cluster.blocks.size())
    throw Fault("an address of block " + std::to_string(rank - 1) + " of a cluster of " +
                std::to_string(cluster.blocks.size()));
  Block& block = *cluster.blocks[rank - 1];
  const std::uint64_t inside = address & ((std::uint64_t{1} << kRankShift) - 1);
  const std::uint32_t offset = shared_offset(block, inside, bytes);
  if (&block != w.block) use_from_outside(w, block);
  return {&block, offset};
}

void check_block_end(Block& block) {
  Cluster& cluster = *block.cluster;
  const std::string name = "block " + std::to_string(block.rank) + " of the cluster ends ";
  for (const BulkCopy& copy : cluster.copies)
    if ((copy.block == &block || copy.source == &block) && copy.way != BulkCopy::Way::kToGlobal)
      throw Fault(name + "while the copy of " + block.program->where(copy.instruction) +
                  " still uses its shared memory");
  if (block.history == nullptr) return;
  for (std::uint32_t agent = 0; agent < cluster.warps(); ++agent)
    if (block.used_from_outside[agent] > block.at_end.of(agent))
      throw Fault(name + "while block " + std::to_string(agent / block.warps.size()) +
                  " may still use its shared memory: no barrier of the cluster at the end");
}

void map_address(Warp& w, const Instruction& i) {
  const auto* address = w.reg<std::uint32_t>(i.slot[1]);
  const auto* rank = w.reg<std::uint32_t>(i.slot[2]);
  const std::size_t blocks = w.block->cluster->blocks.size();
  alignas(64) std::uint32_t mapped[kLanes] = {};
  for (unsigned l = 0; l < kLanes; ++l) {
    if ((w.mask >> l & 1) == 0) continue;
    if (rank[l] >= blocks)
      throw Fault("mapa to block " + std::to_string(rank[l]) + " of a cluster of " +
                  std::to_string(blocks));
    mapped[l] = (rank[l] + 1) << kRankShift | (address[l] & ((1u << kRankShift) - 1));
  }
  put(w, i.slot[0], mapped);
}

void complete_cluster_barrier(Cluster& cluster) {
  unsigned living = 0, arrived = 0;
  for (const Block* block : cluster.blocks)
    for (const Warp& w : block->warps) {
      living += w.alive != 0;
      arrived += w.alive != 0 && w.cluster_arrived;
    }
  if (living == 0 || arrived < living) return;
  for (Block* block : cluster.blocks)
    for (Warp& w : block->warps) {
      w.cluster_arrived = false;
      block->lanes->order_warp(w.number);
      w.cluster_clock.join(cluster.clock);  // taken over by its wait
      w.cluster_inits.join(cluster.inits);
      if (w.wait != Wait::kCluster) continue;
      w.wait = Wait::kNone;
      w.clock.join(w.cluster_clock);
      w.inits.join(w.cluster_inits);
    }
  cluster.clock.clear();
  cluster.inits.clear();
  ++cluster.events;
}

template <bool kRelaxedArrival>
void arrive_cluster(Warp& w, const Instruction&) {
  Cluster& cluster = *w.block->cluster;
  if (std::exchange(w.at_cluster_barrier, true))
    throw Fault("barrier.cluster.arrive twice without barrier.cluster.wait in between");
  w.cluster_arrived = true;
  cluster.inits.join(w.fenced_inits);
  if (kRelaxedArrival)
    cluster.clock.set(w.agent, std::max(cluster.clock.of(w.agent), kStarted));
  else
    release_into(w, cluster.clock);
  ++cluster.events;
  complete_cluster_barrier(cluster);
}
template void arrive_cluster<true>(Warp&, const Instruction&);
template void arrive_cluster<false>(Warp&, const Instruction&);

void wait_cluster(Warp& w, const Instruction&) {
  if (!std::exchange(w.at_cluster_barrier, false))
    throw Fault("barrier.cluster.wait without barrier.cluster.arrive before");
  if (w.cluster_arrived) {
    w.wait = Wait::kCluster;
    return;
  }
  w.clock.join(w.cluster_clock);
  w.inits.join(w.cluster_inits);
}

// Inits of this warp (and those that it knows) may be seen by the cluster and by the copy engine.
void fence_mbarrier_init(Warp& w, const Instruction&) {
  for (auto& [offset, b] : w.block->mbarriers)
    if (b.made.known_to(w.clock)) {
      b.fenced = true;
      w.fenced_inits.set(b.made.agent, std::max(w.fenced_inits.of(b.made.agent), b.made.time));
    }
}

void elect(Warp& w, const Instruction& i) {
  // Which one is the device's to choose: always the same of the same members.
  const auto leader = static_cast<unsigned>(w.block->eager ? 31 - std::countl_zero(w.mask)
                                                           : std::countr_zero(w.mask));
  if (i.results != 2) throw Fault("unknown form of elect.sync");
  each_lane<std::uint32_t>(w, i.slot[0], [&](unsigned) { return leader; });
  each_lane<std::uint8_t>(w, i.slot[1], [&](unsigned l) { return std::uint8_t{l == leader}; });
}

namespace {

bool take_registers(Warp& w) {
  const std::uint32_t more = (w.wait_phase - w.registers_each) * kLanes;
  if (w.block->free_registers < more) return false;
  w.block->free_registers -= more;
  w.registers_each = w.wait_phase;
  return true;
}

}  // namespace

template <bool kMore>
void set_registers(Warp& w, const Instruction& i) {
  const auto wanted = static_cast<std::uint32_t>(i.immediate);
  if (wanted < 24 || wanted > 256 || wanted % 8 != 0)
    throw Fault("setmaxnreg of " + std::to_string(wanted) + ": no multiple of 8 in 24..256");
  Block& block = *w.block;
  if ((w.number / 4 + 1) * 4 > block.warps.size())
    throw Fault("setmaxnreg in a warpgroup that is not whole");
  if (kMore ? wanted < w.registers_each : wanted > w.registers_each)
    throw Fault(std::string("setmaxnreg.") + (kMore ? "inc" : "dec") + " to " +
                std::to_string(wanted) + " of a thread that has " +
                std::to_string(w.registers_each));
  w.register_changes.push_back(static_cast<std::uint32_t>(&i - block.program->code.data()));
  for (unsigned n = w.number / 4 * 4; n < w.number / 4 * 4 + 4; ++n) {
    const auto &mine = w.register_changes, &other = block.warps[n].register_changes;
    if (other.size() >= mine.size() && other[mine.size() - 1] != mine.back())
      throw Fault("the warps of a warpgroup have different setmaxnreg");
  }
  w.wait_phase = wanted;
  if (kMore) {
    if (!take_registers(w)) w.wait = Wait::kRegisters;
    return;
  }
  block.free_registers += (w.registers_each - wanted) * kLanes;
  w.registers_each = wanted;
  ++block.cluster->events;
  for (Warp& other : block.warps)
    if (other.wait == Wait::kRegisters && take_registers(other)) other.wait = Wait::kNone;
}
template void set_registers<true>(Warp&, const Instruction&);
template void set_registers<false>(Warp&, const Instruction&);

namespace {

std::string text_of_wait(const Warp& w) {
  switch (w.wait) {
    case Wait::kNamed: {
      const NamedBarrier& b = w.block->named[w.wait_at];
      return "barrier " + std::to_string(w.wait_at) + " (" + std::to_string(b.arrived) +
             (b.count == NamedBarrier::kAll ? "" : " of " + std::to_string(b.count)) +
             " threads have come)";
    }
    case Wait::kCluster:
      return "barrier.cluster";
    case Wait::kRegisters:
      return std::to_string((w.wait_phase - w.registers_each) * kLanes) + " registers, of which " +
             std::to_string(w.block->free_registers) + " are free";
    case Wait::kPoll:
      if (const auto found = w.block->mbarriers.find(w.wait_at); found != w.block->mbarriers.end())
        return "the end of phase " + std::to_string(w.wait_phase) + " (" +
               describe(found->second, w.wait_at) + ")";
      return "something";
    case Wait::kNone:
      break;
  }
  return "nothing";
}

}  // namespace

std::string deadlock_text(const Cluster& cluster) {
  std::string text = "deadlock";
  std::string last;
  for (const Block* block : cluster.blocks)
    for (const Warp& w : block->warps) {
      if (w.alive == 0) continue;
      std::string what = block->program->where(w.wait_instruction) + " for " + text_of_wait(w);
      text += (text == "deadlock" ? ": block " : "; block ") + std::to_string(block->here.x) + "," +
              std::to_string(block->here.y) + "," + std::to_string(block->here.z) + ", warp " +
              std::to_string(w.number) + " waits " + (what == last ? "there, too" : "at " + what);
      last = std::move(what);
    }
  return text;
}

namespace {

template <class F>
void each_place(Warp& w, const Instruction& i, std::uint32_t slot, unsigned bytes, F f) {
  const auto* address = w.reg<std::uint32_t>(slot);
  for (unsigned l = 0; l < kLanes; ++l)
    if ((w.mask >> l & 1) != 0)
      f(l, shared_place(w, address[l] + static_cast<std::uint32_t>(i.immediate), bytes));
}

template <unsigned kBytes, unsigned kParts>
void load_cluster(Warp& w, const Instruction& i) {
  if (i.data_width != kBytes || i.width != 4) throw Fault("unknown form of ld.shared::cluster");
  each_place(w, i, i.slot[kParts], kBytes * kParts, [&](unsigned l, const SharedPlace& place) {
    place.block->history->read(w, place.offset, kBytes * kParts);
    for (unsigned p = 0; p < kParts; ++p)
      std::memcpy(w.registers + i.slot[p] + l * kBytes,
                  place.block->shared + place.offset + p * kBytes, kBytes);
  });
}
template <unsigned kBytes, unsigned kParts>
void store_cluster(Warp& w, const Instruction& i) {
  if (i.data_width != kBytes || i.width != 4) throw Fault("unknown form of st.shared::cluster");
  each_place(w, i, i.slot[0], kBytes * kParts, [&](unsigned l, const SharedPlace& place) {
    place.block->history->write(w, place.offset, kBytes * kParts);
    for (unsigned p = 0; p < kParts; ++p)
      std::memcpy(place.block->shared + place.offset + p * kBytes,
                  w.registers + i.slot[1 + p] + l * kBytes, kBytes);
  });
}

}  // namespace

Handler find_cluster_load(unsigned bytes, unsigned parts) {
  if (bytes == 4)
    return parts == 1 ? load_cluster<4, 1> : parts == 2 ? load_cluster<4, 2> : load_cluster<4, 4>;
  if (bytes == 8 && parts <= 2) return parts == 1 ? load_cluster<8, 1> : load_cluster<8, 2>;
  if (bytes == 2 && parts == 1) return load_cluster<2, 1>;
  return nullptr;
}
Handler find_cluster_store(unsigned bytes, unsigned parts) {
  if (bytes == 4)
    return parts == 1   ? store_cluster<4, 1>
           : parts == 2 ? store_cluster<4, 2>
                        : store_cluster<4, 4>;
  if (bytes == 8 && parts <= 2) return parts == 1 ? store_cluster<8, 1> : store_cluster<8, 2>;
  if (bytes == 2 && parts == 1) return store_cluster<2, 1>;
  return nullptr;
}

}  // namespace ptx
