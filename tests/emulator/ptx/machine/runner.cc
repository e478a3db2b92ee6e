// A warp's lanes run together as long as they are at the same place. Where they part, the group
// that is furthest back runs first, so that groups meet again where their ways do; an instruction
// that needs lanes of another group waits for them.
#include "tests/emulator/ptx/machine/runner.h"

#include <utility>

namespace ptx {

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
    if (!g.waiting && !g.polled && (best == nullptr || g.at < best->at)) best = &g;
  if (best == nullptr) return false;
  w.at = best->at;
  w.active = 0;
  merge(w);
  return true;
}

Stop Runner::run(Warp& w, std::uint64_t fuel) {
  const Instruction* code = program_.code.data();
  std::uint32_t limit = limit_of(w);
  const auto park = [&](bool waiting, bool polled = false) {
    if (w.active != 0) w.others.push_back({w.at, w.active, waiting, polled});
    w.active = 0;
  };
  w.wait = Wait::kNone;
  for (;;) {
    if (w.active == 0 || w.at >= limit) {
      if (w.active != 0 && w.at == limit) {
        merge(w);
      } else {
        park(false);
        if (!switch_group(w)) {
          if (w.others.empty()) return Stop::kEnded;
          bool polled = false;
          for (Group& g : w.others) polled |= std::exchange(g.polled, false);
          if (polled) return Stop::kPolled;
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
          w.others.push_back({i.target, mask, false, false});
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
        check_copies_at_end(w, mask);
        ++w.at;
        // Others may have waited for these.
        for (Group& g : w.others) g.waiting = false;
        limit = limit_of(w);
        break;
      case Kind::kPoll:
        w.mask = mask;
        if (mask != 0) i.run(w, i);
        ++w.at;
        if (std::exchange(w.polled, false)) {
          w.wait = Wait::kPoll;
          w.wait_instruction = w.at - 1;
          park(false, true);
          limit = limit_of(w);
        }
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
        if (i.kind == Kind::kBarrier || w.wait != Wait::kNone) {
          w.wait_instruction = w.at - 1;
          return Stop::kBarrier;
        }
        limit = limit_of(w);
        break;
      }
    }
  }
}

}  // namespace ptx
