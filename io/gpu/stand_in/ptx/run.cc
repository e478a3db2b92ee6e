// A warp's lanes run together as long as they are at the same place. Where they part, the group
// that is furthest back runs first, so that groups meet again where their ways do; an instruction
// that needs lanes of another group waits for them.
#include "io/gpu/stand_in/ptx/run.h"

#include <algorithm>
#include <new>
#include <string>

#include "io/gpu/stand_in/ptx/warp.h"

namespace ptx {
namespace {

constexpr std::size_t kMostShared = 227 * 1024;  // what a block of sm_90 may have
constexpr std::uint32_t kNowhere = ~0u;

enum class Stop { kBarrier, kEnded, kPaused };

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

class Runner {
 public:
  explicit Runner(const Program& program) : program_(program) {}

  // Runs the warp for at most `fuel` instructions.
  Stop run(Warp& w, std::uint64_t fuel);
  [[noreturn]] void fail(const Warp& w, const std::string& what) const {
    std::string text = program_.where(w.at) + ": " + what + " (" + program_.name + ", block " +
                       std::to_string(here.x) + "," + std::to_string(here.y) + "," +
                       std::to_string(here.z) + ", warp " + std::to_string(w.number) + ")";
    throw Fault(text);
  }
  simt::Index here;

 private:
  bool switch_group(Warp& w);
  void merge(Warp& w);
  std::uint32_t limit_of(const Warp& w) const {
    std::uint32_t limit = kNowhere;
    for (const Group& g : w.others)
      if (!g.waiting) limit = std::min(limit, g.at);
    return limit;
  }

  const Program& program_;
};

// Takes in the groups that are where the running one is.
void Runner::merge(Warp& w) {
  std::erase_if(w.others, [&](const Group& g) {
    if (g.at != w.at) return false;
    w.active |= g.lanes;
    return true;
  });
}

// Goes on with the group that is furthest back and does not wait; false: there is none.
bool Runner::switch_group(Warp& w) {
  const Group* best = nullptr;
  for (const Group& g : w.others)
    if (!g.waiting && (best == nullptr || g.at < best->at)) best = &g;
  if (best == nullptr) return false;
  w.at = best->at;
  w.active = 0;
  merge(w);
  return true;
}

Stop Runner::run(Warp& w, std::uint64_t fuel) {
  const Instruction* code = program_.code.data();
  std::uint32_t limit = limit_of(w);
  const auto park = [&](bool waiting) {
    if (w.active != 0) w.others.push_back({w.at, w.active, waiting});
    w.active = 0;
  };
  for (;;) {
    if (w.active == 0 || w.at >= limit) {
      if (w.active != 0 && w.at == limit) {
        merge(w);
      } else {
        park(false);
        if (!switch_group(w)) {
          if (w.others.empty()) return Stop::kEnded;
          w.at = w.others.front().at;
          fail(w, "lanes of a warp wait for others that never come here");
        }
      }
      limit = limit_of(w);
    }
    if (fuel-- == 0) return Stop::kPaused;
    const Instruction& i = code[w.at];
    Mask mask = w.active;
    if (i.guarded) {
      const Mask guard = mask_of(w.reg<std::uint8_t>(i.guard));
      mask &= i.negated ? ~guard : guard;
      if (mask == 0 &&
          (i.kind == Kind::kPlain || i.kind == Kind::kBranch || i.kind == Kind::kExit)) {
        ++w.at;
        continue;
      }
    }
    switch (i.kind) {
      case Kind::kPlain:
        w.mask = mask;
        i.run(w, i);
        ++w.at;
        break;
      case Kind::kBranch:
        if (mask == w.active) {
          w.at = i.target;
        } else {
          w.others.push_back({i.target, mask, false});
          w.active &= ~mask;
          ++w.at;
        }
        limit = limit_of(w);
        if (w.at < limit) break;
        continue;
      case Kind::kExit:
        w.alive &= ~mask;
        w.active &= ~mask;
        for (const auto& copy : w.copies)
          if ((copy->lanes & mask) != 0)
            throw Fault("a thread ends without waiting for its asynchronous copies");
        if (!w.products.empty()) throw Fault("a thread ends without waiting for its wgmma");
        ++w.at;
        // Others may have waited for these.
        for (Group& g : w.others) g.waiting = false;
        limit = limit_of(w);
        break;
      case Kind::kBarrier:
      case Kind::kWholeWarp:
      case Kind::kMemberMask: {
        if (i.guarded && mask != w.active) throw Fault("some lanes only of a warp take part");
        merge(w);
        Mask needed = i.kind == Kind::kWholeWarp ? kAllLanes : w.alive;
        if (i.kind == Kind::kMemberMask) {
          const auto* members = w.reg<std::uint32_t>(i.slot[i.mask_slot]);
          const unsigned first = static_cast<unsigned>(std::countr_zero(w.active));
          needed = members[first];
          for (unsigned l = 0; l < kLanes; ++l)
            if ((w.active >> l & 1) != 0 && members[l] != needed)
              throw Fault("member masks that differ between lanes");
          if ((w.active & ~needed) != 0) throw Fault("a lane that its own member mask lacks");
        }
        if ((needed & ~w.alive) != 0) throw Fault("lanes that have ended are waited for");
        if (w.active != needed) {
          park(true);
          limit = limit_of(w);
          continue;
        }
        if (mask == 0) {  // all skip it
          ++w.at;
          break;
        }
        w.mask = mask;
        i.run(w, i);
        ++w.at;
        if (i.kind == Kind::kBarrier) return Stop::kBarrier;
        limit = limit_of(w);
        break;
      }
    }
  }
}

void set_all(Warp& w, std::uint32_t slot, unsigned bytes, std::uint64_t bits) {
  for (unsigned l = 0; l < kLanes; ++l) std::memcpy(w.registers + slot + l * bytes, &bits, bytes);
}

unsigned axis_of(const simt::Index& index, unsigned axis) {
  return axis == 0 ? index.x : axis == 1 ? index.y : index.z;
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
         std::size_t shared_bytes, Schedule schedule) {
  static thread_local Room register_room, shared_room;
  static thread_local LaneOrder lanes;
  const unsigned count = block.x * block.y * block.z;
  const auto refuse = [&](const std::string& what) {
    throw Fault(program.file + ": " + program.name + ": " + what);
  };
  if (count == 0 || count % kLanes != 0)
    refuse("a block of " + std::to_string(count) + " threads: not whole warps");
  if (count > program.most_threads)
    refuse("a block of " + std::to_string(count) + " threads, compiled for at most " +
           std::to_string(program.most_threads));
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535)
    refuse("a grid that no device takes");
  if (shared_bytes > kMostShared) refuse(std::to_string(shared_bytes) + " bytes of shared memory");

  Block b;
  b.program = &program;
  b.parameters = parameters;
  b.shared_bytes = static_cast<std::uint32_t>(shared_bytes);
  b.shared = shared_room.of(shared_bytes + 64);
  std::vector<simt::DeviceRange> ranges(program.code.size());
  b.ranges = &ranges;
  b.random.seed(schedule.seed);
  b.eager = schedule.seed != 0;
  b.readers.resize(shared_bytes);
  b.writers.resize(shared_bytes);
  lanes.resize(shared_bytes, count / kLanes);
  b.lanes = &lanes;
  const unsigned warps = count / kLanes;
  b.warps.resize(warps);
  const std::size_t each = (program.register_bytes + 63) / 64 * 64 + 64;  // apart in the caches
  std::byte* registers = register_room.of(each * warps);
  std::memset(registers, 0xff, each * warps);
  for (unsigned n = 0; n < warps; ++n) {
    Warp& w = b.warps[n];
    w.number = n;
    w.block = &b;
    w.registers = registers + n * each;
    for (const Program::Constant& c : program.constants) set_all(w, c.slot, c.bytes, c.bits);
    for (const Program::SpecialUse& s : program.specials) {
      auto* to = w.reg<std::uint32_t>(s.slot);
      for (unsigned l = 0; l < kLanes; ++l) {
        const unsigned thread = n * kLanes + l;
        const simt::Index tid{thread % block.x, thread / block.x % block.y,
                              thread / (block.x * block.y)};
        to[l] = s.what == Special::kTid      ? axis_of(tid, s.axis)
                : s.what == Special::kNtid   ? axis_of(block, s.axis)
                : s.what == Special::kNctaid ? axis_of(grid, s.axis)
                : s.what == Special::kLane   ? l
                                             : n;
      }
    }
  }
  Runner runner(program);
  std::vector<unsigned> order(warps);
  for (runner.here.z = 0; runner.here.z < grid.z; ++runner.here.z)
    for (runner.here.y = 0; runner.here.y < grid.y; ++runner.here.y)
      for (runner.here.x = 0; runner.here.x < grid.x; ++runner.here.x) {
        std::memset(b.shared, 0xff, shared_bytes);  // what it finds is nobody's: NaN
        const auto forget_accesses = [&] {
          std::fill(b.readers.begin(), b.readers.end(), std::uint8_t{0});
          std::fill(b.writers.begin(), b.writers.end(), std::uint8_t{0});
          lanes.order_block();
        };
        forget_accesses();
        if (program.uses_wgmma) {
          b.unfenced.assign((shared_bytes + 15) / 16, 0);
          b.products.assign((warps + 3) / 4, {});
        }
        for (Warp& w : b.warps) {
          w.alive = w.active = kAllLanes;
          w.at = 0;
          w.others.clear();
          w.at_barrier = false;
          w.copies.clear();
          std::fill(std::begin(w.committed), std::end(w.committed), 0u);
          w.product_groups = 0;
          w.products_issued = 0;
          w.fenced = false;
          for (const Program::SpecialUse& s : program.specials)
            if (s.what == Special::kCtaid) set_all(w, s.slot, 4, axis_of(runner.here, s.axis));
        }
        for (unsigned left = warps; left > 0;) {
          order.clear();
          for (const Warp& w : b.warps)
            if (w.alive != 0 && !w.at_barrier) order.push_back(w.number);
          if (order.empty()) {  // all that have not ended are at the barrier
            for (Warp& w : b.warps) w.at_barrier = false;
            forget_accesses();
            continue;
          }
          if (schedule.seed != 0) std::shuffle(order.begin(), order.end(), b.random);
          for (const unsigned n : order) {
            Warp& w = b.warps[n];
            const std::uint64_t fuel =
                schedule.seed == 0 || b.random() % 2 == 0 ? ~std::uint64_t{0} : b.random() % 200;
            Stop stop = Stop::kPaused;
            try {
              stop = runner.run(w, fuel);
            } catch (const Fault& fault) {
              runner.fail(w, fault.what());
            }
            if (stop == Stop::kBarrier) w.at_barrier = true;
            if (stop == Stop::kEnded) --left;
          }
        }
      }
}

}  // namespace ptx
