// Implements collectives between threads: each call publishes its operands, waits at a barrier,
// computes on all ranks' memory, and waits again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "io/base/time/clock.h"

namespace backends {

class InprocExchange {
 public:
  // The clock outlives this.
  InprocExchange(int world_size, int timeout_ms, const base::Clock& clock = base::kSteadyClock);
  int world_size() const { return world_size_; }

  // Collective. Throws MismatchError on every rank if the calls differ, PeerError at the deadline
  // or after abort().
  void run(int rank, const Call& call);
  void abort(const std::string& reason) noexcept;

 private:
  void begin_call(int rank);
  void end_call(int rank) noexcept;
  // Returns the number of completed barriers that includes this one.
  std::uint64_t arrive(int rank);
  bool spin_until(std::uint64_t generation) const;
  void compare(const ControlWord& word, int rank) const;
  void reduce(int rank, const ControlWord& word, bool to_all) const;
  std::string missing_ranks() const;

  const int world_size_, timeout_ms_;
  const base::Clock& clock_;
  const bool spin_;
  std::vector<Call> calls_;  // by rank; written before the first barrier, read between the two
  std::atomic<std::uint64_t> generation_{0};  // barriers completed
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::condition_variable all_arrived_;
  std::vector<bool> arrived_ranks_;  // guarded by mutex_
  int arrived_ = 0;                  // guarded by mutex_
  std::string reason_;               // guarded by mutex_
};

// One rank's view of an exchange.
std::unique_ptr<Communicator> make_inproc_communicator(std::shared_ptr<InprocExchange> exchange,
                                                       int rank);

}  // namespace backends
