// Runs a warp's instructions.
#pragma once

#include <algorithm>
#include <string>

#include "tests/emulator/ptx/machine/warp.h"

namespace ptx {

// kPolled: it asked in vain for what others have to do.
enum class Stop { kBarrier, kEnded, kPaused, kPolled };

class Runner {
 public:
  explicit Runner(const Program& program) : program_(program) {}

  // Runs the warp for at most `fuel` instructions.
  Stop run(Warp& w, std::uint64_t fuel);
  [[noreturn]] void fail(const Warp& w, const std::string& what) const {
    const simt::Index& here = w.block->here;
    std::string text = program_.where(w.at) + ": " + what + " (" + program_.name + ", block " +
                       std::to_string(here.x) + "," + std::to_string(here.y) + "," +
                       std::to_string(here.z) + ", warp " + std::to_string(w.number) + ")";
    throw Fault(text);
  }

 private:
  static constexpr std::uint32_t kNobody = ~0u;
  bool switch_group(Warp& w);
  void merge(Warp& w);
  std::uint32_t limit_of(const Warp& w) const {
    std::uint32_t limit = kNobody;
    for (const Group& g : w.others)
      if (!g.waiting && !g.polled) limit = std::min(limit, g.at);
    return limit;
  }

  const Program& program_;
};

}  // namespace ptx
