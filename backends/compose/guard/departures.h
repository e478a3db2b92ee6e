// Ends calls that wait for ranks that have left the group in order.
//
// A rank that leaves states how many calls it has made of each communicator. A later call can never
// be complete, so it fails at once and names the rank. Earlier calls complete: the rank has sent
// all that they need.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace backends {

// The number of the last call on each communicator, by the digest of the communicator's name.
using CallCounts = std::map<std::uint64_t, std::uint32_t>;

// For messages between ranks. call_counts() ignores bytes after the last whole entry.
std::string to_bytes(const CallCounts& counts);
CallCounts call_counts(std::string_view bytes);

// Thread-safe.
class Departures {
 public:
  // Makes the current call of a communicator fail with this text.
  using Abort = std::function<void(const std::string& why)>;

  // The calls of one communicator of this rank.
  class Calls {
   public:
    // Notes the next call. Returns true if a member has left before it.
    bool begin(std::uint32_t number) noexcept {
      last_.store(number, std::memory_order_seq_cst);
      return is_late(number);
    }
    std::string why(std::uint32_t number) const;

   private:
    friend class Departures;
    bool is_late(std::uint32_t number) const noexcept {
      // The numbers of very long runs wrap around.
      return limited_.load(std::memory_order_seq_cst) &&
             static_cast<std::int32_t>(number - limit_.load(std::memory_order_relaxed)) > 0;
    }

    std::uint64_t name_ = 0;
    std::vector<int> members_;
    Abort abort_;
    std::atomic<std::uint32_t> last_{0}, limit_{0};
    std::atomic<bool> limited_{false};
    mutable std::mutex mutex_;
    std::string who_;  // the rank with the lowest limit; guarded by mutex_
  };

  // `name` is equal on all members; `members` are ranks of the group. `abort` is called until
  // remove() by any thread.
  std::shared_ptr<Calls> add(std::string_view name, std::vector<int> members, Abort abort);
  void remove(const std::shared_ptr<Calls>& calls) noexcept;

  // Returns the counts of this rank, also of communicators that were removed.
  CallCounts counts() const;
  // Called when another rank has left after these calls. `who`: e.g. "rank 1 (host n7, pid 42)".
  void left(int rank, const std::string& who, const CallCounts& counts);

 private:
  struct Departed {
    std::string who;
    CallCounts counts;
  };
  static void limit(Calls& calls, int rank, const Departed& departed);

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Calls>> calls_;
  std::map<int, Departed> departed_;  // by rank
  CallCounts removed_;
};

}  // namespace backends
