// Places for registers.
//
// Kernels have thousands of registers, each of which is written in one or two places and needed
// for a few instructions. Those that are never needed at the same time share a place, so that a
// block's registers stay in the processor's caches. A register is needed from the first to the last
// instruction that names it; where it is named inside and outside of a loop, or read in it before
// it is written, in all of the loop.
#include <algorithm>

#include "tests/emulator/ptx/decode/registers.h"

namespace ptx {
namespace {

struct Loop {
  std::uint32_t first, last;
};

std::vector<Loop> loops_of(const Program& program) {
  std::vector<Loop> loops;
  for (std::uint32_t at = 0; at < program.code.size(); ++at)
    if (program.code[at].kind == Kind::kBranch && program.code[at].target <= at)
      loops.push_back({program.code[at].target, at});
  return loops;
}

// `use(register, written)`, reads before writes.
void for_each_operand(const Program& program, const Instruction& i, const auto& use) {
  if (i.guarded) use(i.guard, false);
  for (unsigned n = i.results; n < i.slots; ++n) use(i.slot[n], false);
  for (unsigned n = 0; n < i.more; ++n) use(program.more[i.target + n], false);
  // A guarded result keeps the old value in some lanes.
  for (unsigned n = 0; n < i.results; ++n) use(i.slot[n], !i.guarded);
}

}  // namespace

std::vector<Registers::Span> Registers::spans_in(const Program& program) const {
  std::vector<Span> spans(bytes_.size());
  for (std::uint32_t at = 0; at < program.code.size(); ++at)
    for_each_operand(program, program.code[at], [&](std::uint32_t reg, bool written) {
      Span& span = spans[reg];
      if (!span.used()) {
        span.first = at;
        span.read_first = !written;
      }
      span.last = at;
    });
  const std::vector<Loop> loops = loops_of(program);
  for (bool changed = true; changed;) {
    changed = false;
    for (const Loop& loop : loops)
      for (Span& span : spans) {
        if (!span.used() || span.last < loop.first || span.first > loop.last) continue;
        const bool inside = span.first >= loop.first && span.last <= loop.last;
        if (inside && !span.read_first) continue;
        if (span.first <= loop.first && span.last >= loop.last) continue;
        span.first = std::min(span.first, loop.first);
        span.last = std::max(span.last, loop.last);
        changed = true;
      }
  }
  return spans;
}

// By size, reused as they become free.
std::vector<std::uint32_t> Registers::places_of(const std::vector<Span>& spans,
                                                std::size_t& end) const {
  std::vector<bool> fixed(bytes_.size());
  for (const auto& [key, reg] : constants_) fixed[reg] = true;
  for (const auto& [key, reg] : specials_) fixed[reg] = true;
  std::vector<std::uint32_t> place(bytes_.size(), 0), order;
  end = 0;
  const auto allocate = [&](unsigned bytes) {
    const auto at = static_cast<std::uint32_t>(end);
    end += (bytes * kLanes + 63) / 64 * 64;
    return at;
  };
  for (std::uint32_t reg = 0; reg < bytes_.size(); ++reg) {
    if (fixed[reg])
      place[reg] = allocate(bytes_[reg]);
    else if (spans[reg].used())
      order.push_back(reg);
  }
  std::ranges::stable_sort(order, {}, [&](std::uint32_t reg) { return spans[reg].first; });
  std::map<unsigned, std::vector<std::uint32_t>> free;
  std::multimap<std::uint32_t, std::uint32_t> ends;  // last instruction: register
  for (const std::uint32_t reg : order) {
    while (!ends.empty() && ends.begin()->first < spans[reg].first) {
      const std::uint32_t over = ends.begin()->second;
      free[bytes_[over]].push_back(place[over]);
      ends.erase(ends.begin());
    }
    std::vector<std::uint32_t>& reusable = free[bytes_[reg]];
    if (reusable.empty()) {
      place[reg] = allocate(bytes_[reg]);
    } else {
      place[reg] = reusable.back();
      reusable.pop_back();
    }
    ends.emplace(spans[reg].last, reg);
  }
  return place;
}

void Registers::place_in(Program& program) const {
  const std::vector<std::uint32_t> place = places_of(spans_in(program), program.register_bytes);
  for (Instruction& i : program.code) {
    i.guard = i.guarded ? place[i.guard] : 0;
    for (unsigned n = 0; n < i.slots; ++n) i.slot[n] = place[i.slot[n]];
  }
  for (std::uint32_t& slot : program.more) slot = place[slot];
  for (const auto& [key, reg] : constants_)
    program.constants.push_back({place[reg], key.first, key.second});
  for (const auto& [key, reg] : specials_)
    program.specials.push_back({place[reg], key.first, key.second});
}

}  // namespace ptx
