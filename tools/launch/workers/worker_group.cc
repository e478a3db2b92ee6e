// Supervises a group of workers, and decides which one failed first.
#include "tools/launch/workers/worker_group.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <system_error>

#include "io/base/machine/process_state.h"
#include "io/base/time/deadline.h"
#include "tools/launch/workers/stop_signals.h"
#include "tools/report/output/exit_codes.h"
#include "tools/report/output/run_log.h"

namespace tools {
namespace {

constexpr std::chrono::seconds kKillTimeout{10};

}  // namespace

int GroupOutcome::code() const {
  if (killed) return 128 + stop_signal.value_or(0);
  if (culprit) return ends[*culprit].code;
  const auto ended_with = [](int code) {
    return [code](const WorkerEnd& end) { return end.code == code; };
  };
  if (std::ranges::any_of(ends, ended_with(kExitPreempted))) return kExitPreempted;
  if (!ends.empty() && std::ranges::all_of(ends, ended_with(kExitLeft))) return kExitLeft;
  return stop_signal ? 128 + *stop_signal : 0;
}

bool GroupOutcome::too_few_are_left() const {
  return !killed && culprit && ends[*culprit].signal != 0;
}

std::string too_few_text(int min_workers, int count) {
  return "fewer than " + std::to_string(min_workers) + " of " + std::to_string(count) +
         " ranks are left, and nobody can join";
}

WorkerGroup::WorkerGroup(GuardProcess& guard, SignalInbox& inbox, GroupRules rules)
    : guard_(guard), inbox_(inbox), rules_(std::move(rules)) {}

WorkerGroup::~WorkerGroup() {
  if (count(Worker::State::kRunning) > 0) deliver_all(SIGKILL);
  finish();
}

void WorkerGroup::start(const std::function<int()>& child) {
  const pid_t pid = fork_worker(child);
  workers_.push_back(
      {.end = {.pid = pid}, .forked = Clock::now(), .pause = RespawnPause(rules_.longest_pause)});
}

pid_t WorkerGroup::fork_worker(const std::function<int()>& child) {
  std::cout.flush();
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    guard_.enter_worker(parent);
    inbox_.restore();
    const int code = child();
    std::cout.flush();
    std::fflush(nullptr);
    _exit(code);
  }
  if (pid < 0)
    throw std::system_error(errno, std::generic_category(),
                            "cannot fork worker " + std::to_string(workers_.size()));
  setpgid(pid, pid);  // as the child does: whichever comes first
  return pid;
}

void WorkerGroup::advance(GroupPhase phase) { phase_ = std::max(phase_, phase); }

long WorkerGroup::count(Worker::State state) const {
  return std::ranges::count(workers_, state, &Worker::state);
}

void WorkerGroup::plan_restart(std::size_t index) {
  if (!rules_.again || phase_ != GroupPhase::kRunning) return;
  Worker& worker = workers_[index];
  worker.child = rules_.again(index, worker.end);
  if (!worker.child) return;
  const auto now = Clock::now();
  worker.due = now + worker.pause.next(now - worker.forked);
  worker.state = Worker::State::kAwaitsRestart;
}

void WorkerGroup::restart_workers() {
  for (Worker& worker : workers_) {
    if (worker.state != Worker::State::kAwaitsRestart) continue;
    if (phase_ != GroupPhase::kRunning) {
      worker.state = Worker::State::kEnded;
    } else if (Clock::now() >= worker.due) {
      if (rules_.kill_orphans) kill(-worker.end.pid, SIGKILL);
      guard_.forget_worker(worker.end.pid);
      waitpid(worker.end.pid, nullptr, 0);
      worker.end = {.pid = fork_worker(worker.child)};
      worker.forked = Clock::now();
      worker.was_restarted = true;
      worker.state = Worker::State::kRunning;
    }
  }
}

GroupOutcome WorkerGroup::wait(std::span<EventSource* const> sources) {
  const auto busy = [this] {
    return count(Worker::State::kRunning) + count(Worker::State::kAwaitsRestart) > 0;
  };
  while (busy() && !stuck()) {
    poll_once(sources);
    take_signals();
    look_for_guard();
    look_for_ends();
    restart_workers();
    find_culprit();
    end_survivors();
  }
  finish();
  return outcome_;
}

void WorkerGroup::poll_once(std::span<EventSource* const> sources) {
  std::vector<pollfd> polls{{inbox_.fd(), POLLIN, 0}};
  std::vector<std::size_t> starts;
  for (EventSource* source : sources) {
    starts.push_back(polls.size());
    source->add_to(polls);
  }
  starts.push_back(polls.size());
  poll(polls.data(), polls.size(), static_cast<int>(rules_.longest_wait.count()));
  for (std::size_t i = 0; i < sources.size(); ++i)
    sources[i]->handle(std::span(polls).subspan(starts[i], starts[i + 1] - starts[i]));
}

void WorkerGroup::take_signals() {
  while (const std::optional<int> signal = inbox_.take()) on_signal(*signal);
}

bool WorkerGroup::asks_to_stop(int signal) const {
  return signal == SIGINT || signal == SIGTERM || (signal == SIGHUP && rules_.ranks_of_one_run);
}

// Closing a session sends several SIGHUPs, and perhaps a SIGTERM.
bool WorkerGroup::is_repeated_hang_up(int signal) const {
  constexpr std::chrono::seconds kOneHangUp{2};
  return stop_ && asks_to_stop(signal) &&
         (signal == SIGHUP ||
          (outcome_.stop_signal == SIGHUP && Clock::now() - stop_->at <= kOneHangUp));
}

// The first is passed on and all may end in order; the second ends all at once.
void WorkerGroup::on_signal(int signal) {
  if (is_repeated_hang_up(signal)) return;
  const bool stop = asks_to_stop(signal);
  if (signal == SIGKILL || (stop && stop_)) {
    if (signal != SIGKILL) outcome_.stop_signal = signal;
    if (!outcome_.stop_signal) outcome_.stop_signal = SIGHUP;  // the control line broke
    outcome_.killed = true;
    if (signal != SIGKILL)
      print_notice("a second signal: the workers are killed; what was saved before is kept");
    advance(GroupPhase::kKilled);
    deliver_all(SIGKILL);
    return;
  }
  if (stop) {
    stop_ = {.at = Clock::now()};
    outcome_.stop_signal = signal;
    advance(GroupPhase::kStopping);
  }
  deliver_all(signal);
}

// Returns true if workers are in an uninterruptible sleep (a dead network disk), which alone
// outlives SIGKILL.
bool WorkerGroup::stuck() const {
  if (!killed_at_ || Clock::now() - *killed_at_ < kKillTimeout) return false;
  print_notice(std::to_string(count(Worker::State::kRunning)) +
               " killed workers have not exited; not waiting any longer");
  return true;
}

void WorkerGroup::look_for_guard() {
  siginfo_t info{};
  if (guard_lost_ ||
      waitid(P_PID, static_cast<id_t>(guard_.pid()), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return;
  guard_lost_ = true;
  print_notice(
      "the guard process " + std::to_string(guard_.pid()) +
      " was killed: if this process is killed too, processes started by the workers may survive");
}

// An ended worker stays a zombie until finish(): so its number cannot become another's while its
// group may be signalled.
bool WorkerGroup::take_end(Worker& worker) const {
  siginfo_t info{};
  if (worker.state != Worker::State::kRunning ||
      waitid(P_PID, static_cast<id_t>(worker.end.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return false;
  worker.state = Worker::State::kEnded;
  worker.end.by_us = phase_ >= GroupPhase::kFailed;
  worker.end.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
  worker.end.code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
  return true;
}

void WorkerGroup::look_for_ends() {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (!take_end(workers_[i])) continue;
    const WorkerEnd& end = workers_[i].end;
    take_stop_signal(end);
    if (end.by_us) continue;
    if (is_orderly(end)) {
      last_orderly_end_ = Clock::now();
      advance(GroupPhase::kDraining);
    }
    if (is_failure(end)) found.push_back(i);
  }
  add_failures(std::move(found));
}

// The exit code of a rank shows that it was asked to stop; then all others stop as well.
void WorkerGroup::take_stop_signal(const WorkerEnd& end) {
  if (outcome_.stop_signal || end.signal != 0) return;
  const auto take = [&](std::span<const int> signals) {
    if (std::ranges::find(signals, end.code - 128) != signals.end())
      outcome_.stop_signal = end.code - 128;
  };
  // Without a folder, a training run that is asked to save ends with one of these codes.
  if (rules_.ranks_of_one_run) take(kSaveSignals);
  // After one of these, no worker is started again.
  constexpr int kStops[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGXCPU};
  if (rules_.min_workers && !end.by_us) take(kStops);
}

// Orders failures that were found in one poll by how likely they are the cause: a worker that was
// killed comes first, and one with code 69, which means that another is missing, last.
void WorkerGroup::add_failures(std::vector<std::size_t> found) {
  const auto weight = [this](std::size_t i) {
    const WorkerEnd& e = workers_[i].end;
    return e.signal != 0 ? 0 : e.code != kExitUnavailable ? 1 : 2;
  };
  std::ranges::stable_sort(found, {}, weight);
  for (const std::size_t i : found) {
    if (rules_.min_workers && !ends_all(workers_[i])) plan_restart(i);
    if (workers_[i].state == Worker::State::kEnded) failures_.push_back({i, Clock::now()});
  }
}

bool WorkerGroup::stopped_as_asked(const WorkerEnd& end) const {
  return outcome_.stop_signal && end.code == 128 + *outcome_.stop_signal;
}

bool WorkerGroup::is_failure(const WorkerEnd& end) const {
  // A worker that was preempted has saved; the others do the same.
  return end.code != 0 && end.code != kExitPreempted && end.code != kExitLeft &&
         !stopped_as_asked(end);
}

bool WorkerGroup::is_orderly(const WorkerEnd& end) const {
  return end.code == kExitPreempted ||
         ((rules_.min_workers || outcome_.stop_signal) && end.code == 0) || stopped_as_asked(end);
}

// A stopped process (SIGSTOP) does not save.
std::optional<std::size_t> WorkerGroup::saver() const {
  const std::size_t count = std::min(rules_.savers, workers_.size());
  const auto cannot_save = [this](const Worker& worker) {
    return worker.state == Worker::State::kRunning ? base::is_stopped(worker.end.pid)
                                                   : is_failure(worker.end);
  };
  const auto first = std::ranges::find_if_not(std::span(workers_).first(count), cannot_save);
  const auto index = static_cast<std::size_t>(first - std::span(workers_).begin());
  if (index == count || first->state != Worker::State::kRunning) return std::nullopt;
  return index;
}

// For workers that may join and leave: returns true if the remaining ones can continue without the
// failed ones.
bool WorkerGroup::may_go_on() const {
  if (!rules_.min_workers) return false;
  const auto is_done = [](const Worker& w) {
    return w.state == Worker::State::kEnded && w.end.code == 0;
  };
  const auto is_well = [&](const Worker& w) {
    return w.state != Worker::State::kEnded || is_done(w) || w.end.code == kExitPreempted ||
           stopped_as_asked(w.end);
  };
  return std::ranges::any_of(workers_, is_done) ||
         std::ranges::count_if(workers_, is_well) >= *rules_.min_workers;
}

// A difference between replicas is found by all ranks, which end with the same code, and none of
// them is known to be right. A rank that was started again may differ alone, e.g. by newer data.
bool WorkerGroup::ends_all(const Worker& worker) const {
  const WorkerEnd& end = worker.end;
  return rules_.min_workers && !worker.was_restarted && !end.by_us && end.signal == 0 &&
         end.code == kExitMismatch;
}

void WorkerGroup::find_culprit() {
  if (decision_ || failures_.empty()) return;
  const auto decisive = std::ranges::find_if(
      failures_, [this](const Failure& failure) { return ends_all(workers_[failure.worker]); });
  const bool is_decided = decisive != failures_.end();
  if (!is_decided && may_go_on()) return;
  const auto cause =
      is_decided ? decisive : std::ranges::find_if(failures_, [this](const Failure& failure) {
        return workers_[failure.worker].end.code != kExitUnavailable;
      });
  if (cause == failures_.end() && rules_.ranks_of_one_run && last_orderly_end_) {
    failures_.clear();  // they missed one that had stopped
    return;
  }
  const bool waited =
      count(Worker::State::kRunning) == 0 ||
      (!(stop_ && saver()) && Clock::now() - failures_.front().seen >= rules_.culprit_wait);
  if (cause == failures_.end() && !waited) return;
  outcome_.culprit = (cause != failures_.end() ? *cause : failures_.front()).worker;
  if (rules_.decided) rules_.decided(*outcome_.culprit, workers_[*outcome_.culprit].end);
  decision_ = {.at = Clock::now()};
  advance(GroupPhase::kFailed);
}

void WorkerGroup::end_survivors() {
  if (count(Worker::State::kRunning) == 0) return;
  switch (phase_) {
    case GroupPhase::kRunning:
    case GroupPhase::kKilled:
      return;
    case GroupPhase::kDraining:
      return end_stragglers();
    case GroupPhase::kStopping:
      end_stragglers();
      return wait_for_stop();
    case GroupPhase::kFailed:
      // After a stop they have had the signal, and a second one would abort their saves.
      return stop_ ? wait_for_stop() : stop_survivors();
  }
}

// A rank that hangs does not end by itself, and a scheduler that has asked for the end does not
// wait for long.
void WorkerGroup::end_stragglers() {
  if (!rules_.ranks_of_one_run || !last_orderly_end_ || saver() ||
      Clock::now() - *last_orderly_end_ < rules_.grace)
    return;
  const long left = count(Worker::State::kRunning);
  print_notice(std::to_string(left) + " of " + std::to_string(workers_.size()) + " workers " +
               (left == 1 ? "has" : "have") + " not ended after the others had: killed");
  advance(GroupPhase::kKilled);
  deliver_all(SIGKILL);
}

void WorkerGroup::wait_for_stop() {
  const auto now = Clock::now();
  const auto since = now - stop_->at;
  if (since >= rules_.stop_grace || (decision_ && now - decision_->at >= 2 * rules_.grace))
    deliver_all(SIGKILL);
  if (since >= std::chrono::seconds(10) && !stop_->reminded) {
    stop_->reminded = true;
    print_notice("still waiting for " + std::to_string(count(Worker::State::kRunning)) + " of " +
                 std::to_string(workers_.size()) + " workers to end; another signal kills them");
  }
}

// The saver may be saving its last step: a second SIGTERM would cut that off.
void WorkerGroup::stop_survivors() {
  const auto since = Clock::now() - decision_->at;
  const std::optional<std::size_t> spared =
      decision_->stop_requests > 0 && since < rules_.stop_grace ? saver() : std::nullopt;
  if (since >= rules_.grace) {
    deliver_all(SIGKILL, spared);
  } else if (decision_->stop_requests == 0 ||
             (decision_->stop_requests == 1 && since >= rules_.grace / 2)) {
    ++decision_->stop_requests;
    deliver_all(SIGTERM, spared);
  }
  if (since >= std::chrono::seconds(10) && spared && !decision_->reminded) {
    decision_->reminded = true;
    print_notice("still waiting for a rank that may be saving; another signal kills it");
  }
}

void WorkerGroup::deliver_all(int signal, std::optional<std::size_t> spared) {
  if (signal == SIGKILL && !killed_at_ && !spared) killed_at_ = Clock::now();
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    if (worker.state != Worker::State::kRunning || i == spared) continue;
    if (rules_.deliver)
      rules_.deliver(i, worker.end.pid, signal);
    else
      kill(-worker.end.pid, signal);
  }
}

void WorkerGroup::finish() {
  if (workers_.empty()) return;
  if (rules_.kill_orphans)
    for (const Worker& worker : workers_) kill(-worker.end.pid, SIGKILL);
  guard_.forget_workers();  // before their numbers can be used again
  for (const Worker& worker : workers_) {
    const auto deadline = base::deadline_in(kKillTimeout);
    const int options = worker.state == Worker::State::kRunning ? WNOHANG : 0;
    while (waitpid(worker.end.pid, nullptr, options) == 0 && !base::has_passed(deadline))
      usleep(1000);
    outcome_.ends.push_back(worker.end);
  }
  workers_.clear();
}

}  // namespace tools
