// Ranks in processes of their own that faults are done to, and what each of them said in the end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/group.h"
#include "tests/backends/group_harness.h"
#include "tests/support/time_limits.h"

namespace fault_stage {

// Of the ranks: so rare that a busy machine's pauses are no silence.
inline std::chrono::milliseconds heartbeat() {
  return test_support::deadline(std::chrono::milliseconds(300));
}

// In a rank's process.
class Actor {
 public:
  Actor(int who, std::string backend, int world_size, group_harness::Door door, int out)
      : who_(who), world_size_(world_size), backend_(std::move(backend)), door_(door), out_(out) {}
  int who() const { return who_; }
  int port() const { return door_.port; }
  // Options of rank `rank` (usually who()) of this scene.
  backends::GroupOptions options(int rank) const;
  // Joins, makes the communicator and says "ready".
  void join(const backends::GroupOptions& options);
  void join() { join(options(who_)); }
  backends::Group& group() { return *group_; }
  backends::Communicator& communicator() { return *communicator_; }
  // Reduces until something is wrong; with `rounds`, so many times, and leaves. Checks every
  // result.
  void work(int rounds = 1'000'000'000);
  void leave();
  void say(const std::string& line) const;
  // TCP connections of this process but those of the store.
  std::vector<int> data_connections() const;

 private:
  const int who_, world_size_;
  const std::string backend_;
  const group_harness::Door door_;
  const int out_;
  std::unique_ptr<backends::Group> group_;
  std::unique_ptr<backends::Communicator> communicator_;
};

// The processes. Whatever happens, none outlives this.
class Stage {
 public:
  // Actor `who` of `count` runs body; what it throws is its last line, after its kind: "peer: ...",
  // "mismatch: ...", "authentication: ...", "configuration: ...", "other: ..."; "done" when it
  // throws nothing. REQUIRES: no other thread runs in this process.
  Stage(const std::string& backend, int world_size, int count,
        const std::function<void(Actor&)>& body);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  int port() const { return door_.port; }
  int size() const { return static_cast<int>(processes_.size()); }
  pid_t pid(int who) const { return processes_[static_cast<std::size_t>(who)].pid; }
  // Until each has said "ready"; false after 10 s, scaled as in deadline.h.
  [[nodiscard]] bool all_ready();
  void strike(int who, int signal) const;
  // The last line, once the process has ended by itself; "hangs" (with what it said) if it has not
  // `within` this time, scaled, from `start`.
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
  group_harness::Door door_;
  std::vector<Process> processes_;
};

}  // namespace fault_stage
