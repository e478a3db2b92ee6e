// Ranks of an elastic job that do nothing but go from view to view: threads of this process, or
// processes that can be killed and stopped.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/membership/membership.h"

namespace elastic_ranks {

// On loopback, with a short heartbeat.
backends::MembershipOptions options_for(int hint, int min_ranks, int max_ranks, int port);

struct Seen {  // of a view
  std::uint64_t generation = 0;
  int rank = 0, world_size = 0, left = 0, joined = 0;
  bool is_new_member = false;
  std::vector<int> pids;
  std::int64_t at_ns = 0;  // of the steady clock
};

// A rank in a thread of its own.
class ThreadRank {
 public:
  explicit ThreadRank(backends::MembershipOptions options);
  ~ThreadRank();

  std::optional<Seen> seen() const;  // the newest view
  std::string error() const;         // with which it ended; "": none
  void crash();                      // ends without a word to the others
  void leave();

 private:
  enum class Order { kGoOn, kCrash, kLeave };
  void run(backends::MembershipOptions options);
  void end(Order order);

  mutable std::mutex mutex_;
  std::optional<Seen> seen_;
  std::string error_;
  Order order_ = Order::kGoOn;
  std::thread thread_;
};

// A rank in a process of its own. REQUIRES: no other thread runs in this process when it is made.
class ProcessRank {
 public:
  explicit ProcessRank(const backends::MembershipOptions& options);
  ~ProcessRank();  // kills it
  ProcessRank(ProcessRank&& other) noexcept;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // The newest view that it has told of, without waiting.
  std::optional<Seen> seen();

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  std::string buffer_;
  std::optional<Seen> seen_;
};

}  // namespace elastic_ranks
