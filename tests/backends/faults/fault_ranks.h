// Ranks in processes of their own, into which faults are injected, and the last line of each.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/group.h"
#include "backends/store/tcp_socket.h"
#include "tests/backends/group_harness.h"
#include "tests/support/time_limits.h"

namespace fault_ranks {

// Long enough that a pause on a busy machine does not count as a missing heartbeat.
inline std::chrono::milliseconds heartbeat() {
  return test_support::deadline(std::chrono::milliseconds(300));
}

// One rank, in its own process.
class Rank {
 public:
  Rank(int who, std::string backend, int world_size, group_harness::Listener listener, int out)
      : who_(who),
        world_size_(world_size),
        backend_(std::move(backend)),
        listener_(listener),
        out_(out) {}
  int who() const { return who_; }
  int port() const { return listener_.port; }
  // The options of rank `rank` (usually who()).
  backends::GroupOptions options(int rank) const;
  // Joins, makes the communicator and prints "ready".
  void join(const backends::GroupOptions& options);
  void join() { join(options(who_)); }
  backends::Group& group() { return *group_; }
  backends::Communicator& communicator() { return *communicator_; }
  // Reduces `rounds` times and leaves, or throws the first error. Checks every result.
  void work(int rounds = 1'000'000'000);
  void leave();
  // What the program does with what has ended it: the others learn it. Nothing before join().
  void abandon(const std::string& why) noexcept;
  void print(const std::string& line) const;
  // The TCP connections of this process, without those to the store.
  std::vector<int> data_connections() const;

 private:
  const int who_, world_size_;
  const std::string backend_;
  const group_harness::Listener listener_;
  const int out_;
  std::unique_ptr<backends::Group> group_;
  std::unique_ptr<backends::Communicator> communicator_;
};

// The processes of a test; the destructor kills those that still run.
class RankProcesses {
 public:
  // Process `who` of `count` runs body. Its last line is "done", or what it threw, after the kind:
  // "peer: ...", "mismatch: ...", "authentication: ...", "configuration: ...", "other: ...". With
  // `holds_port` the port of the store stays taken when rank 0 has ended, by a socket that listens
  // here and never answers; else another process may take it then, and answer. REQUIRES: no other
  // thread runs in this process.
  RankProcesses(const std::string& backend, int world_size, int count,
                const std::function<void(Rank&)>& body, bool holds_port = false);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  int port() const { return listener_.port; }
  int size() const { return static_cast<int>(processes_.size()); }
  pid_t pid(int who) const { return processes_[static_cast<std::size_t>(who)].pid; }
  // Waits until each has printed "ready"; false after 10 s, scaled.
  [[nodiscard]] bool all_ready();
  void send_signal(int who, int signal) const;
  // The last line of a process that ends by itself `within` this time, scaled, after `start`;
  // "hangs", with the last line so far, if it does not end.
  std::string outcome(int who, std::chrono::steady_clock::time_point start,
                      std::chrono::milliseconds within);

 private:
  struct Process {
    pid_t pid = -1;
    int out = -1;
    std::string text;
    bool ended = false;
  };
  bool read_more(Process& process, std::chrono::steady_clock::time_point start,
                 std::chrono::milliseconds within);
  group_harness::Listener listener_;
  backends::Socket held_;  // the listener's, where this process holds the port
  std::vector<Process> processes_;
};

}  // namespace fault_ranks
