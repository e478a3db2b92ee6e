// The order of accesses, by vector clocks, and the races that it leaves.
#include "tests/emulator/ptx/machine/access_history.h"

#include "tests/emulator/ptx/machine/cluster.h"
#include "tests/emulator/ptx/machine/warp.h"

namespace ptx {
namespace {

constexpr unsigned kEach = 2;
std::uint32_t first_of(std::uint32_t offset) { return offset / kEach; }
std::uint32_t end_of(std::uint32_t offset, unsigned bytes) {
  return (offset + bytes + kEach - 1) / kEach;
}

}  // namespace

History::History(std::uint32_t bytes, unsigned warps)
    : warps_(warps), places_(bytes / kEach + 1), readers_((bytes / kEach + 1) * warps) {}

std::string History::name_of(const Warp& w, std::uint32_t agent) const {
  const Cluster& cluster = *w.block->cluster;
  if (agent >= cluster.warps()) return "a copy";
  const auto each = static_cast<std::uint32_t>(w.block->warps.size());
  std::string name = "warp " + std::to_string(agent % each);
  if (cluster.blocks.size() > 1) name += " of block " + std::to_string(agent / each);
  return name;
}

void History::fail(const Warp& w, const char* does, std::uint32_t place,
                   const std::string& why) const {
  throw Fault("a race: " + name_of(w, w.agent) + " " + does + " byte " +
              std::to_string(place * kEach) + " of shared memory, which " + why);
}

void History::check_read(const Warp& w, const char* does, std::uint32_t place) const {
  const Place& p = places_[place];
  if (p.barrier) fail(w, does, place, "is an mbarrier's");
  if (p.written_by_copy != 0)
    fail(w, does, place,
         "the copy of " + w.block->program->where(p.written_by_copy - 1) + " still writes");
  if (!p.writer.known_to(w.clock))
    fail(w, does, place,
         name_of(w, p.writer.agent) + " wrote without a barrier or a wait in between");
}

void History::check_write(const Warp& w, const char* does, std::uint32_t place) const {
  check_read(w, does, place);
  if (places_[place].copies_reading != 0) fail(w, does, place, "a copy still reads");
  const std::uint32_t* readers = &readers_[std::size_t{place} * warps_];
  for (unsigned n = 0; n < warps_; ++n)
    if (n != w.agent && readers[n] > w.clock.of(n))
      fail(w, does, place, name_of(w, n) + " read without a barrier or a wait in between");
}

void History::read(const Warp& w, std::uint32_t offset, unsigned bytes) {
  if (bytes < kEach) return;
  const std::uint32_t now = w.clock.of(w.agent);
  for (std::uint32_t p = first_of(offset); p < end_of(offset, bytes); ++p) {
    check_read(w, "reads", p);
    readers_[std::size_t{p} * warps_ + w.agent] = now;
  }
}

void History::write(const Warp& w, std::uint32_t offset, unsigned bytes) {
  if (bytes < kEach) return;
  const Stamp stamp{w.agent, w.clock.of(w.agent)};
  for (std::uint32_t p = first_of(offset); p < end_of(offset, bytes); ++p) {
    check_write(w, "writes", p);
    places_[p].writer = stamp;
    std::fill_n(readers_.begin() + static_cast<std::ptrdiff_t>(std::size_t{p} * warps_), warps_,
                0u);
  }
}

void History::begin_copy_to(const Warp& w, std::uint32_t offset, unsigned bytes,
                            std::uint32_t copy) {
  for (std::uint32_t p = first_of(offset); p < end_of(offset, bytes); ++p) {
    check_write(w, "copies to", p);
    places_[p].written_by_copy = copy + 1;
  }
}

void History::begin_copy_from(const Warp& w, std::uint32_t offset, unsigned bytes) {
  for (std::uint32_t p = first_of(offset); p < end_of(offset, bytes); ++p) {
    check_read(w, "copies from", p);
    ++places_[p].copies_reading;
  }
}

void History::end_copy_to(Stamp stamp, std::uint32_t offset, unsigned bytes) {
  for (std::uint32_t p = first_of(offset); p < end_of(offset, bytes); ++p) {
    places_[p].written_by_copy = 0;
    places_[p].writer = stamp;
    std::fill_n(readers_.begin() + static_cast<std::ptrdiff_t>(std::size_t{p} * warps_), warps_,
                0u);
  }
}

void History::end_copy_from(std::uint32_t offset, unsigned bytes) {
  for (std::uint32_t p = first_of(offset); p < end_of(offset, bytes); ++p)
    --places_[p].copies_reading;
}

void History::set_barrier(std::uint32_t offset, bool is) {
  for (std::uint32_t p = first_of(offset); p < end_of(offset, 8); ++p) places_[p].barrier = is;
}

bool History::written_before(const Clock& clock, std::uint32_t offset, unsigned bytes) const {
  for (std::uint32_t p = first_of(offset); p < end_of(offset, bytes); ++p)
    if (!places_[p].writer.known_to(clock)) return false;
  return true;
}

}  // namespace ptx
