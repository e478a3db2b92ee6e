// Receives INT, TERM, HUP, USR1, USR2 and CHLD of this process as events on a descriptor instead of
// interruptions.
#pragma once

#include <signal.h>

#include <deque>
#include <optional>

#include "backends/store/tcp_socket.h"
#include "io/base/time/clock.h"

namespace tools {

// Blocks the signals for the calling thread while it exists. A SIGHUP that was ignored before
// (nohup) stays ignored. REQUIRES: no other thread.
class SignalInbox {
 public:
  explicit SignalInbox(const base::Clock& clock = base::kSteadyClock);  // throws std::runtime_error
  // Restores the signal mask; also in a forked child that needs its own handling (see restore).
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  int fd() const { return fd_.fd(); }  // readable if a signal is pending
  // Returns the next signal, except SIGCHLD. One that a process repeats at once counts once:
  // timeout(1) sends it to a process and then to its group.
  std::optional<int> take();
  void put(int signal) { put_.push_back(signal); }  // as if this process had received it
  // Called in a forked worker: restores the signal mask and SIGPIPE as the user had set them.
  void restore() const;

 private:
  struct Request {
    std::uint32_t signal, sender;
    base::Deadline at;
  };

  const base::Clock& clock_;
  std::optional<Request> last_;  // of a process
  backends::Socket fd_;
  sigset_t old_mask_{};
  struct sigaction old_pipe_ {};
  std::deque<int> put_;
};

}  // namespace tools
