// Receives INT, TERM, HUP, USR1, USR2 and CHLD of this process as events on a descriptor instead of
// interruptions.
#pragma once

#include <signal.h>

#include <deque>
#include <optional>

#include "backends/store/tcp_socket.h"

namespace tools {

// Blocks the signals for the calling thread while it exists. A SIGHUP that was ignored before
// (nohup) stays ignored. REQUIRES: no other thread.
class SignalInbox {
 public:
  SignalInbox();  // throws std::runtime_error
  // Restores the signal mask; also in a forked child that needs its own handling (see restore).
  ~SignalInbox();
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  int fd() const { return fd_.fd(); }               // readable if a signal is pending
  std::optional<int> take();                        // the next signal, except SIGCHLD
  void put(int signal) { put_.push_back(signal); }  // as if this process had received it
  // Called in a forked worker: restores the signal mask and SIGPIPE as the user had set them.
  void restore() const;

 private:
  backends::Socket fd_;
  sigset_t old_mask_{};
  struct sigaction old_pipe_ {};
  std::deque<int> put_;
};

}  // namespace tools
