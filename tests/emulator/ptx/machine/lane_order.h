// Whether two lanes of a warp meet in shared memory without anything that orders them: a barrier of
// the block, or bar.warp.sync (__syncwarp()). Shuffles, votes and mma do not: PTX lets them order
// no memory. Lanes run in step here, so that numbers cannot tell.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ptx {

class LaneOrder {
 public:
  // The "lane" of instructions that all lanes of a warp execute together, as ldmatrix.
  static constexpr unsigned kWholeWarp = 32;

  // For another launch. What earlier ones left is long ago.
  void resize(std::size_t shared_bytes, std::size_t warps) {
    const std::size_t units = std::max(readers_.size(), (shared_bytes + kUnit - 1) / kUnit);
    readers_.resize(units);
    writers_.resize(units);
    since_.resize(warps);
    order_block();
  }
  void order_block() {
    tick();
    std::fill(since_.begin(), since_.end(), now_);
  }
  void order_warp(unsigned warp) {
    tick();
    since_[warp] = now_;
  }

  // An access of the lane, unordered with which other's? kNone, a lane, kWholeWarp or kSeveral.
  // What another warp did is not looked for here. Single bytes are not followed.
  static constexpr unsigned kNone = 99, kSeveral = 33;
  unsigned read(unsigned warp, unsigned lane, std::uint32_t offset, unsigned bytes) {
    unsigned met = kNone;
    if (bytes < kUnit) return met;
    const std::uint32_t own = now_ * kSlots + lane + 1, several = now_ * kSlots + kSeveral + 1,
                        first = since_[warp] * kSlots;
    for (std::uint32_t u = offset / kUnit; u < (offset + bytes) / kUnit; ++u) {
      if (writers_[u] >= first && writers_[u] % kSlots != own % kSlots) met = lane_of(writers_[u]);
      const bool other = readers_[u] >= first && readers_[u] % kSlots != own % kSlots;
      readers_[u] = other ? several : own;
    }
    return met;
  }
  unsigned write(unsigned warp, unsigned lane, std::uint32_t offset, unsigned bytes) {
    unsigned met = kNone;
    if (bytes < kUnit) return met;
    const std::uint32_t own = now_ * kSlots + lane + 1, first = since_[warp] * kSlots;
    for (std::uint32_t u = offset / kUnit; u < (offset + bytes) / kUnit; ++u) {
      if (readers_[u] >= first && readers_[u] % kSlots != own % kSlots) met = lane_of(readers_[u]);
      if (writers_[u] >= first && writers_[u] % kSlots != own % kSlots) met = lane_of(writers_[u]);
      writers_[u] = own;
    }
    return met;
  }

 private:
  static constexpr std::uint32_t kUnit = 2, kSlots = 64, kLast = ~0u / kSlots;

  static unsigned lane_of(std::uint32_t mark) { return mark % kSlots - 1; }
  void tick() {
    if (++now_ < kLast) return;
    std::fill(readers_.begin(), readers_.end(), 0u);
    std::fill(writers_.begin(), writers_.end(), 0u);
    std::fill(since_.begin(), since_.end(), 1u);
    now_ = 1;
  }

  // By two bytes of shared memory: when it was last touched, and by which lane. Time passes with
  // everything that orders lanes.
  std::vector<std::uint32_t> readers_, writers_;
  std::vector<std::uint32_t> since_;  // by warp: since when its lanes are not ordered
  std::uint32_t now_ = 1;
};

}  // namespace ptx
