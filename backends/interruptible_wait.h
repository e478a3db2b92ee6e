// Polling with a deadline, which another thread can abort: how communicators wait for events that
// have no file descriptor.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "backends/backend_error.h"
#include "io/base/deadline.h"

namespace backends {

class InterruptibleWait {
 public:
  explicit InterruptibleWait(std::chrono::milliseconds timeout) : timeout_(timeout) {}
  // Ends current and future waits. The first reason is kept.
  void abort(std::string_view reason) noexcept;
  // Throws PeerError "aborted: WHY".
  void throw_if_aborted() const;
  // Waits until done() is true. Throws PeerError when aborted, or "timeout after N ms in " +
  // what().
  template <typename What, typename Done>
  void until(const What& what, const Done& done) const {
    const base::Deadline deadline = base::deadline_in(timeout_);
    for (int polls = 0; !done(); ++polls) {
      throw_if_aborted();
      if (base::has_passed(deadline))
        throw PeerError("timeout after " + std::to_string(timeout_.count()) + " ms in " + what());
      if (polls > kBusyPolls) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  static constexpr int kBusyPolls = 10'000;  // then sleeps between polls
  const std::chrono::milliseconds timeout_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::string reason_;
};

}  // namespace backends
