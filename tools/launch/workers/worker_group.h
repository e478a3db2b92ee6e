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
  bool ended = false;
  bool by_us = false;  // true if it ended after the group had been terminated
  int code = 0;        // 128 + N for signal N
  int signal = 0;
};

struct GroupOutcome {
  int culprit = -1;     // index of the worker whose failure was decisive; -1: none failed
  int stop_signal = 0;  // the signal that asked all to stop; 0: none
  bool killed = false;  // a second signal came, or the control line broke: all were killed
  std::vector<WorkerEnd> ends;
  // Returns the code of the culprit, else 75 if a worker was preempted, 80 if all have left an
  // elastic job, else 128 + the stop signal, else 0.
  int code() const;
  // For workers that may join and leave: returns true if the culprit's end does not show the cause,
  // since it was killed, as others may have been before.
  bool too_few_are_left() const;
};

// Returns e.g. "fewer than 2 of 3 ranks are left, and nobody can join".
std::string too_few_text(int least, int count);

// Another event source to poll while the group runs.
class EventSource {
 public:
  virtual ~EventSource() = default;
  virtual void add_to(std::vector<pollfd>& polls) = 0;
  virtual void handle(std::span<const pollfd> polls) = 0;  // those that it has added, in order
};

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
  // The workers are ranks of one training. SIGHUP also asks them to stop. After one has ended in
  // order following a stop or a preemption, nothing is left to save: the others have `grace` from
  // the last such end, and are then killed.
  bool ranks_of_one_run = false;
  // > 0: workers may fail while this many continue, or have ended well.
  int least = 0;
  // With `least`: called with a failure that a restart may fix. Returns the function that worker
  // `index` runs when it is forked again, after a pause that doubles with each failure; or nothing.
  std::function<std::function<int()>(int index, const WorkerEnd& end)> again = {};
  std::chrono::milliseconds longest_pause = RespawnPause::kUsualLongest;
  int saver = -1;  // the worker that saves for all, while others may wait; -1: not here
  // Sends a signal to worker `index`; empty: kill(2) on its process group.
  std::function<void(int index, pid_t pid, int signal)> deliver = {};
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
  pid_t start(const std::function<int()>& child);
  // Returns when all workers have ended.
  GroupOutcome wait(std::span<EventSource* const> sources);

 private:
  using Clock = std::chrono::steady_clock;
  struct Again {  // a worker to be forked again
    RespawnPause pause;
    Clock::time_point forked{}, due{};
    std::function<int()> child;
  };

  pid_t fork_worker(const std::function<int()>& child);
  void plan_again(int index);
  void fork_again();
  bool awaits_again() const;
  long alive() const;
  void poll_once(std::span<EventSource* const> sources);
  void take_signals();
  void on_signal(int signal);
  bool asks_to_stop(int signal) const;
  bool stuck() const;
  void look_for_guard();
  void look_for_ends();
  void find_culprit();
  bool may_go_on() const;
  void end_survivors();
  bool stopped_as_asked(const WorkerEnd& end) const;  // by the signal that all received
  bool is_failure(const WorkerEnd& end) const;
  bool is_orderly(const WorkerEnd& end) const;
  bool is_saving() const;  // or may be
  void end_stragglers();
  void deliver(int index, int signal) const;
  void deliver_all(int signal);
  void finish();

  GuardProcess& guard_;
  SignalInbox& inbox_;
  GroupRules rules_;
  GroupOutcome outcome_;
  std::vector<Again> again_;   // one per worker
  std::vector<int> failures_;  // in the order of detection
  std::optional<Clock::time_point> first_failure_, decided_, stop_asked_, killed_at_;
  std::optional<Clock::time_point> orderly_end_;  // the last one
  int told_ = 0;  // how often survivors of a failure have been asked to end
  bool reminded_ = false, guard_lost_ = false, finished_ = false;
  bool stragglers_killed_ = false;
};

}  // namespace tools
