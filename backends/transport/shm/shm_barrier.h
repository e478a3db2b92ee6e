// A split barrier between the ranks of a shared segment: one counter per rank, which its owner
// increments and the others wait for. A short note goes with each arrival, in the same cache line.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/abort_state.h"
#include "backends/backend.h"
#include "backends/core_sharing.h"

namespace backends {

// A cache line in shared memory. Each rank has one for its odd and one for its even arrivals, so
// that it can write a note while others still read the previous one. Zero at the start.
struct alignas(64) ShmFlag {
  static constexpr std::size_t kNoteBytes = 48;

  std::atomic<std::uint32_t> phase;     // number of its rank's latest arrival here; a futex
  std::atomic<std::uint32_t> sleepers;  // ranks that sleep on `phase`
  std::atomic<std::int32_t> core;       // core that its rank ran on then
  alignas(16) char note[kNoteBytes];
};
static_assert(sizeof(ShmFlag) == 64 && std::atomic<std::uint32_t>::is_always_lock_free);

// One rank's view of the barrier. One caller at a time; abort() from any thread.
class ShmBarrier {
 public:
  static constexpr std::size_t kFlags = 2;  // per rank

  // `flags`: kFlags for each rank, in shared memory, outlives this.
  ShmBarrier(ShmFlag* flags, const BackendContext& context);

  // This rank's note for its next arrival: kNoteBytes bytes. May be written after this rank has
  // waited for the previous arrival.
  char* next_note() const { return flag(rank_, phase_ + 1).note; }
  // Returns the note of a rank's arrival that this rank has waited for; valid until this rank's
  // next one.
  const char* note(int rank, std::uint32_t phase) const { return flag(rank, phase).note; }

  // Arrives: earlier writes of this rank are visible to ranks that have waited for the returned
  // phase.
  std::uint32_t arrive() noexcept;
  // Waits until all other ranks have arrived `phase` times. Spins for some microseconds if there is
  // a core for every rank, then sleeps. Throws PeerError at the deadline (naming the missing ranks)
  // or after abort().
  void wait_for_all(std::uint32_t phase);
  // Arrives and waits, which costs less than the two calls.
  std::uint32_t arrive_and_wait();
  void abort(std::string_view reason) noexcept;
  // Same as the text of Communicator::current_wait(). Any thread.
  std::string waiting_text() const;

 private:
  ShmFlag& flag(int rank, std::uint32_t phase) const {
    return flags_[static_cast<std::size_t>(rank) * kFlags + phase % kFlags];
  }
  bool has_arrived(int rank, std::uint32_t phase) const {
    return static_cast<std::int32_t>(flag(rank, phase).phase.load(std::memory_order_acquire) -
                                     phase) >= 0;
  }
  bool all_have_arrived(std::uint32_t phase) const {
    for (int r = 0; r < size_; ++r)
      if (r != rank_ && !has_arrived(r, phase)) return false;
    return true;
  }
  void publish() noexcept;
  void wake_sleepers() noexcept;
  void wait_for(int rank, std::uint32_t phase);
  void sleep_until_arrived(int rank, std::uint32_t phase);
  std::string missing_ranks(std::uint32_t phase) const;

  ShmFlag* const flags_;
  const int rank_, size_;
  const std::vector<int> names_;
  const std::chrono::milliseconds timeout_;
  const base::Clock& clock_;
  const int spins_;
  YieldingWait yielding_;  // replaces spinning on shared cores
  std::uint32_t phase_ = 0;
  AbortState abort_;
};

}  // namespace backends
