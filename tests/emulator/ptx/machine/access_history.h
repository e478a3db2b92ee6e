// Who touched shared memory, and what orders it: for kernels whose warps meet by mbarriers, by
// named barriers or in clusters, where "since the last barrier of the block" says nothing.
//
// Vector clocks. An agent is a warp of the cluster or an mbarrier: a warp counts its releases, an
// mbarrier its phases. An access is known to a warp if the warp's clock has reached the number that
// the agent had then; what a copy writes is the mbarrier's, in the phase that it completes in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace ptx {

struct Warp;

class Clock {
 public:
  std::uint32_t of(std::uint32_t agent) const { return agent < at_.size() ? at_[agent] : 0; }
  void set(std::uint32_t agent, std::uint32_t time) {
    if (agent >= at_.size()) at_.resize(agent + 1);
    at_[agent] = time;
  }
  void join(const Clock& other) {
    if (other.at_.size() > at_.size()) at_.resize(other.at_.size());
    for (std::size_t a = 0; a < other.at_.size(); ++a) at_[a] = std::max(at_[a], other.at_[a]);
  }
  void clear() { at_.clear(); }

 private:
  std::vector<std::uint32_t> at_;
};

// When an agent did something; of agent 0 at 0: before the kernel.
struct Stamp {
  std::uint32_t agent = 0, time = 0;
  bool known_to(const Clock& clock) const { return time <= clock.of(agent); }
};

// Of one block's shared memory, by 2 bytes; accesses of a single byte are not looked at.
class History {
 public:
  History(std::uint32_t bytes, unsigned warps);

  // By a warp; fault unless all that it may not overtake is known to it.
  void read(const Warp& w, std::uint32_t offset, unsigned bytes);
  void write(const Warp& w, std::uint32_t offset, unsigned bytes);
  // A copy that `w` issues is going to write or to read there.
  void begin_copy_to(const Warp& w, std::uint32_t offset, unsigned bytes, std::uint32_t copy);
  void begin_copy_from(const Warp& w, std::uint32_t offset, unsigned bytes);
  void end_copy_to(Stamp stamp, std::uint32_t offset, unsigned bytes);
  void end_copy_from(std::uint32_t offset, unsigned bytes);
  // The 8 bytes of an mbarrier are nobody's to read and write.
  void set_barrier(std::uint32_t offset, bool is);
  bool written_before(const Clock& clock, std::uint32_t offset, unsigned bytes) const;

 private:
  struct Place {
    Stamp writer;
    std::uint32_t written_by_copy = 0;  // in flight: its instruction + 1
    std::uint16_t copies_reading = 0;
    bool barrier = false;
  };
  void check_read(const Warp& w, const char* does, std::uint32_t place) const;
  void check_write(const Warp& w, const char* does, std::uint32_t place) const;
  [[noreturn]] void fail(const Warp& w, const char* does, std::uint32_t place,
                         const std::string& why) const;
  std::string name_of(const Warp& w, std::uint32_t agent) const;

  unsigned warps_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> readers_;  // of each place, by warp: when it read last
};

}  // namespace ptx
