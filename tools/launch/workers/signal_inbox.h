// Signals as events: INT, TERM, HUP, USR1, USR2 and CHLD of this process, read from a descriptor
// instead of interrupting.
#pragma once

#include <signal.h>

#include <deque>
#include <optional>

#include "backends/store/tcp_socket.h"

namespace tools {

// Blocks the signals for the calling thread while it lives. SIGHUP that was ignored before (nohup)
// stays ignored. REQUIRES: no other thread.
class SignalInbox {
 public:
  SignalInbox();   // throws std::runtime_error
  ~SignalInbox();  // puts the signal mask back; also in a forked child that wants its own handling
                   // (see restore)
  SignalInbox(const SignalInbox&) = delete;
  SignalInbox& operator=(const SignalInbox&) = delete;

  int fd() const { return fd_.fd(); }               // readable when there is something
  std::optional<int> take();                        // the next signal, SIGCHLD left out
  void put(int signal) { put_.push_back(signal); }  // as if it had been sent to this process
  // In a forked worker: the signal mask and SIGPIPE as the user had them.
  void restore() const;

 private:
  backends::Socket fd_;
  sigset_t old_mask_{};
  struct sigaction old_pipe_ {};
  std::deque<int> put_;
};

}  // namespace tools
