// A group of child processes that is managed as one: forked, supervised, signaled, and terminated
// if one fails.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tools/launch/workers/guard_process.h"
#include "tools/launch/workers/respawn_pause.h"
#include "tools/launch/workers/signal_inbox.h"

namespace tools {

struct WorkerEnd {
  pid_t pid = 0;
  bool by_us = false;  // after the group had been given up
  int code = 0;        // 128 + N for signal N
  int signal = 0;      // that killed it; 0: it exited
};

struct GroupOutcome {
  std::optional<std::size_t> culprit;  // index of the worker whose failure decided
  std::optional<int> stop_signal;      // that asked all to stop
  bool killed = false;  // a second one came, or the control line broke: all were killed
  std::vector<WorkerEnd> ends;
  // Returns the code of the culprit, else 75 if a worker was preempted, 80 if all have left an
  // elastic job, else 128 + the stop signal, else 0.
  int code() const;
  // For workers that may join and leave: returns true if the culprit's end does not show the cause,
  // since it was killed, as others may have been before.
  bool too_few_are_left() const;
};

// Returns e.g. "fewer than 2 of 3 ranks are left, and nobody can join".
std::string too_few_text(int min_workers, int count);

// Another event source to poll while the group runs.
class EventSource {
 public:
  virtual ~EventSource() = default;
  virtual void add_to(std::vector<pollfd>& polls) = 0;
  virtual void handle(std::span<const pollfd> polls) = 0;  // those that it has added, in order
};

// Rank 0 of a training run saves, or rank 1 if rank 0 is lost.
inline constexpr int kSavingRanks = 2;

struct GroupRules {
  // A rank that ends with 69 misses another one: wait this long for a more likely culprit.
  std::chrono::milliseconds culprit_wait{2500};
  // The time between SIGTERM for the survivors of a failure and SIGKILL; half way, SIGTERM is
  // repeated.
  std::chrono::milliseconds grace{5000};
  // The limit of an orderly stop, including saves.
  std::chrono::milliseconds stop_grace{300'000};
  std::chrono::milliseconds longest_wait{200};
  // Terminate the remaining processes of the workers' process groups after all workers have ended.
  bool kill_orphans = true;
  // The workers are ranks of one training run. SIGHUP also asks them to stop. After one has ended
  // in order following a stop or a preemption, nothing is left to save: the others have `grace`
  // from the last such end, and are then killed.
  bool ranks_of_one_run = false;
  // Workers may fail as long as this number continue, or have succeeded; none: no worker may. The
  // end of a worker with 76 that was never started again ends all: its ranks or replicas differ.
  std::optional<int> min_workers;
  // With `min_workers`: called after a failure that a restart may fix. Returns what worker `index`
  // runs when it is forked again, after a pause that doubles from one failure to the next; or
  // nothing.
  std::function<std::function<int()>(std::size_t index, const WorkerEnd& end)> again = {};
  std::chrono::milliseconds longest_pause = RespawnPause::kUsualLongest;
  // The first workers that may save for all: the first of them that has neither failed nor been
  // stopped (SIGSTOP) does, while the others miss it.
  std::size_t savers = 0;
  // Called with the worker whose failure has decided, before the survivors are asked to end.
  std::function<void(std::size_t index, const WorkerEnd&)> decided = {};
  // Sends a signal to worker `index`; empty: kill(2) to its process group.
  std::function<void(std::size_t index, pid_t pid, int signal)> deliver = {};
};

// The phases of a group, in order: it never returns to an earlier one.
enum class GroupPhase {
  kRunning,   // no worker has a reason to end; only now a failed worker is started again
  kDraining,  // a worker has ended in order, so the others are about to
  kStopping,  // a signal has asked all to stop: they save and end
  kFailed,    // a failure has decided: the survivors are asked to end, then killed
  kKilled,    // those that were left have been killed
};

class WorkerGroup {
 public:
  // The guard and the inbox must outlive the group.
  WorkerGroup(GuardProcess& guard, SignalInbox& inbox, GroupRules rules);
  ~WorkerGroup();  // kills and reaps the remaining workers
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // Forks the next worker; `child` runs in it and its result is the exit code. Throws
  // std::runtime_error.
  void start(const std::function<int()>& child);
  // Returns when all have ended.
  GroupOutcome wait(std::span<EventSource* const> sources);

 private:
  using Clock = std::chrono::steady_clock;
  struct Worker {
    enum class State { kRunning, kEnded, kAwaitsRestart };
    State state = State::kRunning;
    WorkerEnd end;
    Clock::time_point forked;
    RespawnPause pause;
    bool was_restarted = false;
    // With kAwaitsRestart.
    Clock::time_point due{};
    std::function<int()> child = {};
  };
  struct Failure {
    std::size_t worker;
    Clock::time_point seen;
  };
  struct StopRequest {
    Clock::time_point at;
    bool reminded = false;  // the user, of workers that take their time
  };
  struct Decision {  // that the group has failed
    Clock::time_point at;
    int stop_requests = 0;  // sent to the survivors
    bool reminded = false;  // the user, of a saver that takes its time
  };

  pid_t fork_worker(const std::function<int()>& child);
  void plan_restart(std::size_t index);
  void restart_workers();
  void advance(GroupPhase phase);  // to that phase, if it is not behind it already
  long count(Worker::State state) const;
  void poll_once(std::span<EventSource* const> sources);
  void take_signals();
  void on_signal(int signal);
  bool asks_to_stop(int signal) const;
  bool is_repeated_hang_up(int signal) const;
  bool stuck() const;
  void look_for_guard();
  void look_for_ends();
  bool take_end(Worker& worker) const;  // true if it has just ended
  void take_stop_signal(const WorkerEnd& end);
  void add_failures(std::vector<std::size_t> found);
  bool ends_all(const Worker& worker) const;
  void find_culprit();
  bool may_go_on() const;
  void end_survivors();
  void end_stragglers();
  void wait_for_stop();
  void stop_survivors();
  bool stopped_as_asked(const WorkerEnd& end) const;  // by the signal that all were asked with
  bool is_failure(const WorkerEnd& end) const;
  bool is_orderly(const WorkerEnd& end) const;
  std::optional<std::size_t> saver() const;  // the worker that may be saving for all
  void deliver_all(int signal, std::optional<std::size_t> spared = std::nullopt);
  void finish();

  GuardProcess& guard_;
  SignalInbox& inbox_;
  GroupRules rules_;
  std::vector<Worker> workers_;
  GroupPhase phase_ = GroupPhase::kRunning;
  GroupOutcome outcome_;           // its `ends` are those of the workers at last
  std::vector<Failure> failures_;  // as they were seen, of workers that are not started again
  std::optional<Clock::time_point> last_orderly_end_, killed_at_;
  std::optional<StopRequest> stop_;
  std::optional<Decision> decision_;
  bool guard_lost_ = false;
};

}  // namespace tools
