// Implements --spawn N: N ranks on this machine, as forked processes, ended together.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace tools {

// The data that a forked rank receives.
struct WorkerPlace {
  int rank = 0;
  // The bound, listening rendezvous socket: for rank 0, or for all; -1 for others.
  int listen_fd = -1;
  int port = 0;        // port of that socket, on 127.0.0.1
  std::string secret;  // secret of this job, hexadecimal
};

// Forks `count` children; each runs body() and exits with its result. Children die with the parent,
// whatever ends it. If one fails, the others are asked to end, and are killed after 5 s. SIGINT,
// SIGTERM and SIGHUP are forwarded; the second one kills, and children that do not end within 5 s
// of the others are killed. Returns 0, or the code of the first child that failed (128+N for signal
// N); the reasons are printed on stderr, the first failure last, equal ones once. REQUIRES: no
// thread has been started in this process.
//
// With `min_workers` the ranks may come and go: the end of one ends the others only where fewer
// than `min_workers` are left, every rank is handed the listening socket, and the code is 0 where
// any has ended with 0.
int run_worker_processes(int count, const std::function<int(const WorkerPlace&)>& body,
                         std::optional<int> min_workers = std::nullopt);

}  // namespace tools
