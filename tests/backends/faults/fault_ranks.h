// Ranks in processes of their own, into which faults are injected, and the last line of each.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
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

// Scaled. Long enough that a pause on a busy machine does not count as a missing heartbeat.
inline constexpr std::chrono::milliseconds kHeartbeat{300};

enum class Event { kArrivedAtBarrier, kReady, kPrepared, kRejected };

// The progress of the processes of a test, in memory that they share: they wait for each
// other without the communicator that is tested.
struct Progress {
  std::array<std::atomic<int>, 4> events{};  // [Event] how often
  std::array<std::atomic<int>, 8> rounds{};  // [process] of work()
};

// The factor of the times that a test waits for, the same in all its processes. Even a load of ten
// processes per core delays a heartbeat by less than a second.
struct TimeScale {
  double factor = std::min(test_support::time_scale(), 5.0);
  std::chrono::milliseconds operator()(std::chrono::milliseconds base) const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(base * factor);
  }
};

// One rank, in its own process.
class Rank {
 public:
  struct Setting {
    int who, processes, world_size;
    std::string backend;
    group_harness::Listener listener;
    TimeScale scaled;
    Progress* progress;
  };
  explicit Rank(Setting setting) : s_(std::move(setting)) {}
  int who() const { return s_.who; }
  int port() const { return s_.listener.port; }
  std::chrono::milliseconds scaled(std::chrono::milliseconds base) const { return s_.scaled(base); }
  std::chrono::milliseconds heartbeat() const { return scaled(kHeartbeat); }
  // The options of rank `rank` (usually who()). Deadlines are so long that only failure detection
  // ends a call.
  backends::GroupOptions options(int rank) const;
  // Joins and makes the communicator.
  void join(const backends::GroupOptions& options);
  void join() { join(options(who())); }
  backends::Group& group() { return *group_; }
  backends::Communicator& communicator() { return *communicator_; }
  // Reduces `rounds` times and leaves, or throws the first error. Checks every result.
  void work(int rounds = 1'000'000'000);
  void leave();
  // What the program does with what has ended it: the others learn it. Nothing before join().
  void abandon(const std::string& why) noexcept;
  // The TCP connections of this process, without those to the store.
  std::vector<int> data_connections() const;

  // Each of these throws if that does not happen within a minute, scaled.
  void wait_for(const std::string& what, const std::function<bool()>& condition) const;
  void wait_for(Event event, int times) const;
  void barrier() const;  // all processes of the test
  void wait_for_work() const;
  void report(Event event) const { ++of(event); }

 private:
  std::atomic<int>& of(Event event) const {
    return s_.progress->events[static_cast<std::size_t>(event)];
  }
  const Setting s_;
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
  // Waits until all have reduced a few times; false after a minute, scaled.
  [[nodiscard]] bool all_work() const;
  std::chrono::milliseconds heartbeat() const { return scaled_(kHeartbeat); }
  void send_signal(int who, int signal) const;
  // The last line of a process that ends by itself; "hangs", with what it wrote so far, if it does
  // not end within a minute, scaled.
  std::string outcome(int who);

 private:
  struct Process {
    pid_t pid = -1;
    int out = -1;
    std::string text;
    bool ended = false;
  };
  group_harness::Listener listener_;
  backends::Socket held_;  // the listener's, where this process holds the port
  TimeScale scaled_;
  Progress* progress_;
  std::vector<Process> processes_;
};

}  // namespace fault_ranks
