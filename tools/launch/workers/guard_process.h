// A small process that outlives this one: if this process is killed, it kills the workers and
// removes temporary files.
#pragma once

#include <sys/types.h>

#include <string>

#include "backends/store/tcp_socket.h"

namespace tools {

// PR_SET_PDEATHSIG reaches a worker itself, but not the worker's children. The guard knows the
// workers' process groups and kills them as soon as its parent has died without dismissing it. It
// runs in its own session and ignores all signals that can be ignored.
class GuardProcess {
 public:
  // Forks. REQUIRES: no thread has been started in this process. Throws std::runtime_error.
  // kill_orphans false: the guard only removes files.
  explicit GuardProcess(bool kill_orphans);
  // Dismisses the guard, and waits until it has ended; after 2 s kills it.
  ~GuardProcess();
  GuardProcess(const GuardProcess&) = delete;
  GuardProcess& operator=(const GuardProcess&) = delete;

  pid_t pid() const { return pid_; }

  // Called in a forked worker before anything else: makes the process group of the worker, reports
  // it to the guard, and closes the connection. The worker dies with `parent` unless orphans may
  // survive.
  void enter_worker(pid_t parent);
  void forget_workers();                           // all groups have ended
  void forget_worker(pid_t pid);                   // this group has ended
  void remove_if_killed(const std::string& path);  // a file of this job; at most 4000 characters

 private:
  backends::Socket line_;
  pid_t pid_ = 0, owner_ = 0;
  bool kill_orphans_;
};

}  // namespace tools
