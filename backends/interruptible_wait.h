// Polls with a deadline until another thread aborts the wait; communicators use it for events that
// have no file descriptor.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "backends/abort_state.h"
#include "backends/backend_error.h"
#include "io/base/time/deadline.h"

namespace backends {

class InterruptibleWait {
 public:
  static constexpr int kBusyPolls = 10'000;  // then it sleeps between polls
  explicit InterruptibleWait(std::chrono::milliseconds timeout, int busy_polls = kBusyPolls)
      : timeout_(timeout), busy_polls_(busy_polls) {}
  // Ends current and future waits. The first reason is kept.
  void abort(std::string_view reason) noexcept { abort_.abort(reason); }
  bool is_aborted() const { return abort_.is_aborted(); }
  // Throws PeerError "aborted: WHY".
  void throw_if_aborted() const { abort_.throw_if_aborted(); }
  // Throws PeerError "timeout after N ms in WHAT".
  [[noreturn]] void throw_timeout(const std::string& what) const {
    throw PeerError("timeout after " + std::to_string(timeout_.count()) + " ms in " + what);
  }
  // Waits until done() is true. Throws PeerError when aborted, or "timeout after N ms in " +
  // what().
  template <typename What, typename Done>
  void until(const What& what, const Done& done) const {
    const base::Deadline deadline = base::deadline_in(timeout_);
    for (int polls = 0; !done(); ++polls) {
      throw_if_aborted();
      if (base::has_passed(deadline)) throw_timeout(what());
      if (polls >= busy_polls_) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  const std::chrono::milliseconds timeout_;
  const int busy_polls_;
  AbortState abort_;
};

}  // namespace backends
