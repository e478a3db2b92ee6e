// Agrees, on a thread of its own, on averagings that do not wait for late ranks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/communicator.h"
#include "engine/averaging/stale/stale_options.h"

namespace engine {

// One averaging. Every rank takes part in its sum, and every rank knows the same of it but for what
// is its own.
struct StaleRound {
  enum class Kind : std::int64_t {
    kScheduled,
    kDrain,  // a mean of all ranks, after which the thread pauses
    kPause   // the same without a mean: the replicas are equal
  };
  Kind kind = Kind::kScheduled;
  std::int64_t step = 0;   // the step that it follows
  bool full = false;       // all ranks are on time
  bool on_time = false;    // this rank is
  double own_weight = 0;   // of this rank's parameters in the mean; 0: it is late
  double kept_weight = 0;  // of its changes that were late in earlier rounds
};

// The work of the thread on parameters. The rank's own thread may change what these functions use
// only within leave_late() and, unless it says otherwise, while the thread pauses.
class StaleWork {
 public:
  virtual ~StaleWork() = default;
  // Adds the late changes that are kept to those that the next round includes. Returns the samples
  // of all of them. Not concurrent with leave_late().
  virtual std::int64_t offer() = 0;
  // Sums what the ranks contribute. Concurrent with the rank's steps and with leave_late().
  virtual void sum(const StaleRound& round) = 0;
  // Uses the sum. Not concurrent with leave_late().
  virtual void finish(const StaleRound& round) = 0;
};

// Ranks exchange signs every few milliseconds, and a round closes on all of them after the same
// exchange: once all ranks are on time, or once one on time has waited for the patience and no late
// one is max_behind rounds behind. A wait that must not end without a rank is a collective that
// waits for this rank: it has the group's deadline and names the rank.
class StaleRounds {
 public:
  struct Arrival {
    StaleRound::Kind kind = StaleRound::Kind::kScheduled;
    std::int64_t step = 0, samples = 0;
    bool waits_for_all = false;
  };
  enum class Outcome { kMissed, kClosed, kFull };
  // How far the other ranks are.
  struct Standing {
    std::int64_t behind = 0;     // rounds closed since this rank's parameters were last averaged
    std::int64_t closed_at = 0;  // the step of the last round
    std::int64_t target = 0;     // a step that this rank does not need to train up to
  };
  struct Totals {
    std::int64_t missed = 0;            // rounds, by all late ranks
    std::vector<std::int64_t> skipped;  // steps that each rank has skipped, as of the last round
  };

  // Both must outlive this; the thread is the only user of the communicator while it runs.
  StaleRounds(backends::Communicator& communicator, const StaleOptions& options, StaleWork& work);
  ~StaleRounds();
  StaleRounds(const StaleRounds&) = delete;
  StaleRounds& operator=(const StaleRounds&) = delete;

  // The functions below are the rank's own thread's, and rethrow a failure of the other one.
  bool is_running();
  void start();  // REQUIRES: the thread pauses
  // Ends the exchanges if they run: the group has failed.
  void cancel();

  Standing standing();
  void add_skipped(std::int64_t steps);
  // All ranks are to come to this step: this one waits for them there. Late ones hear of it after
  // the patience.
  void call_to(std::int64_t step);
  // Waits for the round of that step. kMissed: it was closed without this rank.
  Outcome join(const Arrival& arrival);
  // Calls leave(), which takes this rank's changes out of its parameters and puts the result of the
  // last round there.
  template <class Leave>
  void leave_late(Leave leave) {
    const std::lock_guard lock(mutex_);
    leave();
    start_period();
  }
  // Calls call() while the thread is not in offer() or finish().
  template <class Call>
  void read(Call call) {
    const std::lock_guard lock(mutex_);
    call(totals_);
  }

 private:
  // A rank sends this to the others, as raw memory.
  struct Sign {
    std::int64_t ready = 0;          // it waits for a round
    std::int64_t waits_for_all = 0;  // that must not close without a rank
    std::int64_t impatient = 0;      // it has waited for long enough
    StaleRound::Kind kind = StaleRound::Kind::kScheduled;
    std::int64_t step = 0, samples = 0;  // of the round that it waits for
    std::int64_t kept = 0;               // samples of late changes
    std::int64_t behind = 0, called_to = 0, skipped = 0;
  };
  struct Decision {
    int ready = 0;
    bool closes = false, all_needed = false, impatient = false;
    StaleRound::Kind kind = StaleRound::Kind::kScheduled;
    std::int64_t step = 0;
  };

  void serve();
  void exchange(std::unique_lock<std::mutex>& lock);
  Decision decide() const;
  void close(const Decision& decision, const Sign& sign, std::unique_lock<std::mutex>& lock);
  bool has_waited(double since, double now) const;  // both in seconds
  void start_period();
  void rethrow() const;

  backends::Communicator& communicator_;
  const StaleOptions options_;
  StaleWork& work_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  Sign own_;
  std::vector<Sign> signs_;  // of all ranks; the thread's
  std::uint64_t events_ = 0;
  bool running_ = false, stop_ = false;
  Outcome outcome_ = Outcome::kMissed;
  std::int64_t closed_at_ = 0, called_to_ = 0;
  std::int64_t calling_to_ = 0;  // own_.called_to after the patience
  double period_start_ = 0, ready_since_ = 0, calling_since_ = 0;
  Totals totals_;
  std::exception_ptr failure_;
  std::thread thread_;  // declared last: it uses all members above
};

}  // namespace engine
