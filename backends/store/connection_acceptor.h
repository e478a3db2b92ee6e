// Accepts connections, and pauses when the system has no descriptor or memory for them: the
// listener stays readable then, and its thread would poll it without a pause.
#pragma once

#include <functional>
#include <string>

#include "backends/store/tcp_socket.h"

namespace backends {

class ConnectionAcceptor {
 public:
  // `notice`, if it is set, gets one line at the first failure: `who` ("", "the relay ") + "cannot
  // accept a connection: REASON; trying again".
  explicit ConnectionAcceptor(std::function<void(const std::string&)> notice = {},
                              std::string who = "")
      : notice_(std::move(notice)), who_(std::move(who)) {}

  // Returns a connection that waits at the listener, non-blocking and close-on-exec. Returns an
  // empty socket, with errno, if none waits or it cannot be accepted now, which begins a pause.
  [[nodiscard]] Socket accept(int listener);
  // Returns true while the listener is not to be polled.
  bool is_paused() const { return !base::has_passed(pause_end_); }
  // Returns the descriptor for poll(): -1, which it ignores, in a pause.
  int polled_fd(int listener) const { return is_paused() ? -1 : listener; }
  Deadline pause_end() const { return pause_end_; }  // in the past without a pause

 private:
  std::function<void(const std::string&)> notice_;
  std::string who_;
  Deadline pause_end_{};
};

}  // namespace backends
