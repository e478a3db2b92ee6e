// A launch: blocks, or clusters of them, one after the other, and whose turn it is within one.
#include "tests/emulator/ptx/machine/run.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "tests/emulator/ptx/machine/runner.h"

namespace ptx {
namespace {

constexpr std::size_t kMaxShared = 227 * 1024;  // what a block of sm_90 may have
constexpr unsigned kMaxBlocksOfCluster = 8;     // that every device takes

// 64-byte aligned room that is kept from launch to launch.
class Room {
 public:
  std::byte* of(std::size_t bytes) {
    if (bytes > bytes_) {
      memory_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64})));
      bytes_ = bytes;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

void set_all(Warp& w, std::uint32_t slot, unsigned bytes, std::uint64_t bits) {
  for (unsigned l = 0; l < kLanes; ++l) std::memcpy(w.registers + slot + l * bytes, &bits, bytes);
}

unsigned axis_of(const simt::Index& index, unsigned axis) {
  return axis == 0 ? index.x : axis == 1 ? index.y : index.z;
}
unsigned volume(const simt::Index& index) { return index.x * index.y * index.z; }
std::string text_of(const simt::Index& index) {
  return std::to_string(index.x) + "x" + std::to_string(index.y) + "x" + std::to_string(index.z);
}

// A kernel's launch: its blocks, as many as a cluster has, which are used for one cluster after the
// other.
class Launch {
 public:
  Launch(const Program& program, const std::byte* parameters, simt::Index grid, simt::Index block,
         std::size_t shared_bytes, Schedule schedule, simt::Index cluster);
  void run();

 private:
  void check(std::size_t shared_bytes, simt::Index asked);
  void make_block(Block& b, unsigned rank, std::byte* shared, std::byte* registers);
  void set_specials(Warp& w, bool of_block);
  void begin(Block& b);
  void begin_warp(Warp& w);
  void run_cluster();
  bool run_round(std::vector<Warp*>& order);  // whether anybody went on
  void end_warp(Warp& w);
  bool land_one();

  const Program& program_;
  const std::byte* parameters_;
  simt::Index grid_, block_, shape_;
  std::uint32_t shared_bytes_;
  Schedule schedule_;
  std::mt19937 random_;
  std::vector<simt::DeviceRange> ranges_;
  std::vector<Block> blocks_;
  Cluster cluster_;
  Runner runner_;
  unsigned warps_, left_ = 0;
  std::size_t register_bytes_;
};

void Launch::check(std::size_t shared_bytes, simt::Index asked) {
  const unsigned count = volume(block_);
  const auto refuse = [&](const std::string& what) {
    throw Fault(program_.file + ": " + program_.name + ": " + what);
  };
  if (count == 0 || count % kLanes != 0)
    refuse("a block of " + std::to_string(count) + " threads: not whole warps");
  if (count > program_.max_threads)
    refuse("a block of " + std::to_string(count) + " threads, compiled for at most " +
           std::to_string(program_.max_threads));
  if (volume(grid_) == 0 || grid_.y > 65535 || grid_.z > 65535)
    refuse("a grid that no device takes");
  if (shared_bytes > kMaxShared) refuse(std::to_string(shared_bytes) + " bytes of shared memory");
  shape_ = asked;
  if (program_.cluster[0] != 0) {
    shape_ = {program_.cluster[0], program_.cluster[1], program_.cluster[2]};
    if (volume(asked) != 1 && text_of(asked) != text_of(shape_))
      refuse("a cluster of " + text_of(asked) + ", compiled for " + text_of(shape_));
  }
  if (volume(shape_) == 0 || volume(shape_) > kMaxBlocksOfCluster || grid_.x % shape_.x != 0 ||
      grid_.y % shape_.y != 0 || grid_.z % shape_.z != 0)
    refuse("a grid of " + text_of(grid_) + " blocks in clusters of " + text_of(shape_));
}

Launch::Launch(const Program& program, const std::byte* parameters, simt::Index grid,
               simt::Index block, std::size_t shared_bytes, Schedule schedule, simt::Index cluster)
    : program_(program),
      parameters_(parameters),
      grid_(grid),
      block_(block),
      shared_bytes_(static_cast<std::uint32_t>(shared_bytes)),
      schedule_(schedule),
      random_(schedule.seed),
      ranges_(program.code.size()),
      runner_(program) {
  static thread_local Room register_room, shared_room;
  static thread_local std::array<LaneOrder, kMaxBlocksOfCluster> lanes;
  check(shared_bytes, cluster);
  warps_ = volume(block_) / kLanes;
  register_bytes_ = (program.register_bytes + 63) / 64 * 64 + 64;  // apart in the caches
  blocks_ = std::vector<Block>(volume(shape_));
  cluster_.shape = shape_;
  const std::size_t shared_each = (shared_bytes + 63) / 64 * 64 + 64;
  std::byte* shared = shared_room.of(shared_each * blocks_.size());
  const std::size_t all_registers = register_bytes_ * warps_ * blocks_.size();
  std::byte* registers = register_room.of(all_registers);
  std::memset(registers, 0xff, all_registers);
  for (Block& b : blocks_) {
    cluster_.blocks.push_back(&b);
    b.lanes = &lanes[cluster_.blocks.size() - 1];
    b.lanes->resize(shared_bytes, warps_);
  }
  for (unsigned rank = 0; rank < blocks_.size(); ++rank)
    make_block(blocks_[rank], rank, shared + rank * shared_each,
               registers + rank * warps_ * register_bytes_);
}

void Launch::make_block(Block& b, unsigned rank, std::byte* shared, std::byte* registers) {
  b.program = &program_;
  b.parameters = parameters_;
  b.shared_bytes = shared_bytes_;
  b.shared = shared;
  b.ranges = &ranges_;
  b.random = &random_;
  b.eager = schedule_.seed != 0;
  b.cluster = &cluster_;
  b.rank = rank;
  b.warps.resize(warps_);
  for (unsigned n = 0; n < warps_; ++n) {
    Warp& w = b.warps[n];
    w.number = n;
    w.agent = rank * warps_ + n;
    w.block = &b;
    w.registers = registers + n * register_bytes_;
    for (const Program::Constant& c : program_.constants) set_all(w, c.slot, c.bytes, c.bits);
    set_specials(w, false);
  }
}

// Of the block: those that differ from block to block.
void Launch::set_specials(Warp& w, bool of_block) {
  const Block& b = *w.block;
  const simt::Index &here = b.here, inside{here.x % shape_.x, here.y % shape_.y, here.z % shape_.z};
  const simt::Index cluster{here.x / shape_.x, here.y / shape_.y, here.z / shape_.z},
      clusters{grid_.x / shape_.x, grid_.y / shape_.y, grid_.z / shape_.z};
  const auto value = [&](const Program::SpecialUse& s, unsigned lane) -> unsigned {
    const unsigned thread = w.number * kLanes + lane;
    switch (s.what) {
      case Special::kTid:
        return axis_of(
            {thread % block_.x, thread / block_.x % block_.y, thread / (block_.x * block_.y)},
            s.axis);
      case Special::kNtid:
        return axis_of(block_, s.axis);
      case Special::kCtaid:
        return axis_of(here, s.axis);
      case Special::kNctaid:
        return axis_of(grid_, s.axis);
      case Special::kLane:
        return lane;
      case Special::kWarp:
        return w.number;
      case Special::kClusterid:
        return axis_of(cluster, s.axis);
      case Special::kNclusterid:
        return axis_of(clusters, s.axis);
      case Special::kClusterCtaid:
        return axis_of(inside, s.axis);
      case Special::kClusterNctaid:
        return axis_of(shape_, s.axis);
      case Special::kClusterCtarank:
        return b.rank;
      case Special::kClusterNctarank:
        return volume(shape_);
    }
    return 0;
  };
  for (const Program::SpecialUse& s : program_.specials) {
    const bool varies = s.what == Special::kCtaid || s.what == Special::kClusterid ||
                        s.what == Special::kClusterCtaid;
    if (varies != of_block) continue;
    for (unsigned l = 0; l < kLanes; ++l) w.reg<std::uint32_t>(s.slot)[l] = value(s, l);
  }
}

void Launch::begin_warp(Warp& w) {
  w.alive = w.active = kAllLanes;
  w.at = 0;
  w.others.clear();
  w.wait = Wait::kNone;
  w.copies.clear();
  std::fill(std::begin(w.committed), std::end(w.committed), 0u);
  w.product_groups = 0;
  w.products_issued = 0;
  w.fenced = false;
  w.clock.clear();
  w.clock.set(w.agent, kFirst);
  w.cluster_clock.clear();
  w.cluster_inits.clear();
  w.inits.clear();
  w.fenced_inits.clear();
  w.at_cluster_barrier = w.cluster_arrived = false;
  std::fill(std::begin(w.bulk_committed), std::end(w.bulk_committed), 0u);
  // What ptxas may give it, of which a kernel with setmaxnreg is taken to have all.
  const unsigned threads = program_.max_threads * std::max(program_.min_blocks, 1u);
  w.registers_each = program_.max_registers != 0 ? program_.max_registers
                                                 : std::min(256u, 65536u / threads / 8 * 8);
  w.register_changes.clear();
  set_specials(w, true);
}

void Launch::begin(Block& b) {
  std::memset(b.shared, 0xff, shared_bytes_);  // what it finds is nobody's: NaN
  if (program_.needs_history) {
    b.history = std::make_unique<History>(shared_bytes_, cluster_.warps());
    b.used_from_outside.assign(cluster_.warps(), 0);
    b.at_end.clear();
    b.mbarriers.clear();
  } else {
    b.readers.assign(shared_bytes_, 0);
    b.writers.assign(shared_bytes_, 0);
  }
  if (program_.uses_wgmma || program_.needs_history)
    b.unfenced.assign((shared_bytes_ + 15) / 16, 0);
  if (program_.uses_wgmma) b.products.assign((warps_ + 3) / 4, {});
  b.lanes->order_block();
  b.named = {};
  b.free_registers = 0;
  for (Warp& w : b.warps) begin_warp(w);
}

void Launch::end_warp(Warp& w) {
  --left_;
  ++cluster_.events;
  Block& b = *w.block;
  b.at_end.join(w.clock);
  complete_named(b);
  complete_cluster_barrier(cluster_);
  if (b.ended()) check_block_end(b);
}

bool Launch::run_round(std::vector<Warp*>& order) {
  bool went_on = false;
  for (Warp* w : order) {
    const std::uint64_t fuel =
        schedule_.seed == 0 || random_() % 2 == 0 ? ~std::uint64_t{0} : random_() % 200;
    Stop stop = Stop::kPaused;
    const bool asked = w->wait == Wait::kPoll;  // and may not yet have asked again
    try {
      stop = runner_.run(*w, fuel);
      if (stop == Stop::kEnded) end_warp(*w);
    } catch (const Fault& fault) {
      runner_.fail(*w, fault.what());
    }
    if (stop != Stop::kPolled && !(asked && stop == Stop::kPaused)) went_on = true;
  }
  return went_on;
}

bool Launch::land_one() {
  if (cluster_.copies.empty()) return false;
  land(cluster_, schedule_.seed == 0 ? 0 : random_() % cluster_.copies.size());
  return true;
}

// Copies land when nobody can go on without them; with a seed also by chance.
void Launch::run_cluster() {
  constexpr unsigned kIdleRoundsBeforeCopies = 2, kIdleRoundsBeforeDeadlock = 1000;
  std::vector<Warp*> order;
  std::uint64_t events = 0;
  unsigned idle = 0;
  for (left_ = warps_ * static_cast<unsigned>(blocks_.size()); left_ > 0;) {
    order.clear();
    for (Block& b : blocks_)
      for (Warp& w : b.warps)
        if (w.alive != 0 && (w.wait == Wait::kNone || w.wait == Wait::kPoll)) order.push_back(&w);
    if (schedule_.seed != 0) {
      std::shuffle(order.begin(), order.end(), random_);
      if (random_() % 4 == 0) land_one();
    }
    const bool went_on = run_round(order);
    if (went_on || std::exchange(events, cluster_.events) != cluster_.events) {
      events = cluster_.events;
      idle = 0;
      continue;
    }
    if ((++idle >= kIdleRoundsBeforeCopies || order.empty()) && land_one()) {
      idle = 0;
      continue;
    }
    if (idle >= kIdleRoundsBeforeDeadlock || order.empty())
      throw Fault(program_.file + ": " + program_.name + ": " + deadlock_text(cluster_));
  }
  finish_copies(cluster_);
}

void Launch::run() {
  simt::Index at;
  for (at.z = 0; at.z < grid_.z; at.z += shape_.z)
    for (at.y = 0; at.y < grid_.y; at.y += shape_.y)
      for (at.x = 0; at.x < grid_.x; at.x += shape_.x) {
        cluster_.agents = cluster_.warps();
        cluster_.copies.clear();
        cluster_.clock.clear();
        cluster_.inits.clear();
        for (Block& b : blocks_) {
          b.here = {at.x + b.rank % shape_.x, at.y + b.rank / shape_.x % shape_.y,
                    at.z + b.rank / (shape_.x * shape_.y)};
          begin(b);
        }
        run_cluster();
      }
}

}  // namespace

bool can_run() {
#if defined(PTX_NEEDS_AVX2)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

void run(const Program& program, const std::byte* parameters, simt::Index grid, simt::Index block,
         std::size_t shared_bytes, Schedule schedule, simt::Index cluster) {
  Launch(program, parameters, grid, block, shared_bytes, schedule, cluster).run();
}

}  // namespace ptx
