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

#include "io/base/time/deadline.h"
#include "tools/launch/workers/stop_signals.h"
#include "tools/report/observers/console_observer.h"
#include "tools/report/output/exit_codes.h"

namespace tools {
namespace {

constexpr std::chrono::seconds kKillTimeout{10};

bool is_stopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto name_end = text.rfind(')');  // "PID (NAME) STATE ..."
  return name_end != std::string::npos && text.compare(name_end, 3, ") T") == 0;
}

}  // namespace

int GroupOutcome::code() const {
  if (killed) return 128 + stop_signal;
  if (culprit >= 0) return ends[static_cast<std::size_t>(culprit)].code;
  if (std::any_of(ends.begin(), ends.end(),
                  [](const WorkerEnd& e) { return e.code == kExitPreempted; }))
    return kExitPreempted;
  if (!ends.empty() &&
      std::ranges::all_of(ends, [](const WorkerEnd& e) { return e.code == kExitLeft; }))
    return kExitLeft;
  return stop_signal != 0 ? 128 + stop_signal : 0;
}

bool GroupOutcome::too_few_are_left() const {
  return !killed && culprit >= 0 && ends[static_cast<std::size_t>(culprit)].signal != 0;
}

std::string too_few_text(int least, int count) {
  return "fewer than " + std::to_string(least) + " of " + std::to_string(count) +
         " ranks are left, and nobody can join";
}

WorkerGroup::WorkerGroup(GuardProcess& guard, SignalInbox& inbox, GroupRules rules)
    : guard_(guard), inbox_(inbox), rules_(std::move(rules)) {}

WorkerGroup::~WorkerGroup() {
  if (alive() > 0) deliver_all(SIGKILL);
  finish();
}

pid_t WorkerGroup::start(const std::function<int()>& child) {
  WorkerEnd end;
  end.pid = fork_worker(child);
  outcome_.ends.push_back(end);
  Again& again = again_.emplace_back();
  again.pause = RespawnPause(rules_.longest_pause);
  again.forked = Clock::now();
  return end.pid;
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
                            "cannot fork worker " + std::to_string(outcome_.ends.size()));
  setpgid(pid, pid);  // the child does the same; either may be first
  return pid;
}

// Plans a restart, except while all are asked to stop, or after the job is done.
void WorkerGroup::plan_again(int index) {
  if (!rules_.again || outcome_.stop_signal != 0 || outcome_.killed || orderly_end_) return;
  Again& again = again_[static_cast<std::size_t>(index)];
  again.child = rules_.again(index, outcome_.ends[static_cast<std::size_t>(index)]);
  if (!again.child) return;
  const auto now = Clock::now();
  again.due = now + again.pause.next(now - again.forked);
  std::erase(failures_, index);
}

void WorkerGroup::fork_again() {
  for (std::size_t i = 0; i < again_.size(); ++i) {
    Again& again = again_[i];
    if (!again.child) continue;
    if (outcome_.stop_signal != 0 || outcome_.killed || orderly_end_ || decided_) {
      again.child = nullptr;
    } else if (Clock::now() >= again.due) {
      WorkerEnd& end = outcome_.ends[i];
      if (rules_.kill_orphans) kill(-end.pid, SIGKILL);
      guard_.forget_worker(end.pid);
      waitpid(end.pid, nullptr, 0);
      end = {};
      end.pid = fork_worker(std::exchange(again.child, nullptr));
      again.forked = Clock::now();
    }
  }
}

bool WorkerGroup::awaits_again() const {
  return std::ranges::any_of(again_, [](const Again& again) { return again.child != nullptr; });
}

GroupOutcome WorkerGroup::wait(std::span<EventSource* const> sources) {
  while ((alive() > 0 || awaits_again()) && !stuck()) {
    poll_once(sources);
    take_signals();
    look_for_guard();
    look_for_ends();
    fork_again();
    find_culprit();
    end_survivors();
  }
  finish();
  return outcome_;
}

long WorkerGroup::alive() const {
  return std::count_if(outcome_.ends.begin(), outcome_.ends.end(),
                       [](const WorkerEnd& e) { return !e.ended; });
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

// The first signal is forwarded, and all may end in order; the second ends all at once. A session
// that closes sends SIGHUP more than once, and perhaps a SIGTERM.
void WorkerGroup::on_signal(int signal) {
  constexpr std::chrono::seconds kOneHangUp{2};
  const bool stop = asks_to_stop(signal);
  if (stop && stop_asked_ &&
      (signal == SIGHUP ||
       (outcome_.stop_signal == SIGHUP && Clock::now() - *stop_asked_ <= kOneHangUp)))
    return;
  if (signal == SIGKILL || (stop && stop_asked_)) {
    if (signal != SIGKILL) outcome_.stop_signal = signal;
    if (outcome_.stop_signal == 0) outcome_.stop_signal = SIGHUP;  // the control line broke
    outcome_.killed = true;
    deliver_all(SIGKILL);
    return;
  }
  if (stop) {
    stop_asked_ = Clock::now();
    outcome_.stop_signal = signal;
  }
  deliver_all(signal);
}

// Returns true if workers are in an uninterruptible sleep (a dead network disk), which alone
// outlives SIGKILL.
bool WorkerGroup::stuck() const {
  if (!killed_at_ || Clock::now() - *killed_at_ < kKillTimeout) return false;
  print_notice(std::to_string(alive()) + " killed workers have not exited; not waiting any longer");
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

// An ended worker stays a zombie until finish(), so that its pid is not reused while its group may
// be signaled.
void WorkerGroup::look_for_ends() {
  std::vector<int> found;
  for (std::size_t i = 0; i < outcome_.ends.size(); ++i) {
    WorkerEnd& end = outcome_.ends[i];
    siginfo_t info{};
    if (end.ended ||
        waitid(P_PID, static_cast<id_t>(end.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
      continue;
    end.ended = true;
    end.by_us = decided_.has_value() || outcome_.killed || stragglers_killed_;
    end.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    end.code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
    // Training without a folder ends with this code if it receives such a signal.
    if (rules_.ranks_of_one_run && outcome_.stop_signal == 0 && end.signal == 0)
      for (const int signal : kSaveSignals)
        if (end.code == 128 + signal) outcome_.stop_signal = signal;
    // If one rank is asked to stop, all stop in order, and none is restarted.
    if (rules_.least > 0 && outcome_.stop_signal == 0 && end.signal == 0 && !end.by_us)
      for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGXCPU})
        if (end.code == 128 + signal) outcome_.stop_signal = signal;
    if (!end.by_us && is_orderly(end)) orderly_end_ = Clock::now();
    if (!end.by_us && is_failure(end)) found.push_back(static_cast<int>(i));
  }
  if (found.empty()) return;
  // Among workers found in the same pass, a killed one is more likely the cause than one that
  // exited, and 69 means that another one is missing.
  const auto weight = [this](int i) {
    const WorkerEnd& e = outcome_.ends[static_cast<std::size_t>(i)];
    return e.signal != 0 ? 0 : e.code != kExitUnavailable ? 1 : 2;
  };
  std::stable_sort(found.begin(), found.end(), [&](int a, int b) { return weight(a) < weight(b); });
  failures_.insert(failures_.end(), found.begin(), found.end());
  if (rules_.least > 0)
    for (const int index : found) plan_again(index);
  if (!first_failure_ && !failures_.empty()) first_failure_ = Clock::now();
}

bool WorkerGroup::stopped_as_asked(const WorkerEnd& end) const {
  return outcome_.stop_signal != 0 && end.code == 128 + outcome_.stop_signal;
}

bool WorkerGroup::is_failure(const WorkerEnd& end) const {
  // A worker that was preempted has saved; the others do the same.
  return end.code != 0 && end.code != kExitPreempted && end.code != kExitLeft &&
         !stopped_as_asked(end);
}

bool WorkerGroup::is_orderly(const WorkerEnd& end) const {
  return end.code == kExitPreempted || (rules_.least > 0 && end.code == 0) ||
         (outcome_.stop_signal != 0 && end.code == 0) || stopped_as_asked(end);
}

// A stopped process (SIGSTOP) does not save.
bool WorkerGroup::is_saving() const {
  if (rules_.saver < 0) return false;
  const WorkerEnd& saver = outcome_.ends[static_cast<std::size_t>(rules_.saver)];
  return !saver.ended && !is_stopped(saver.pid);
}

// For workers that may join and leave: returns true if the remaining ones can continue without the
// failed ones.
bool WorkerGroup::may_go_on() const {
  if (rules_.least == 0) return false;
  const auto well =
      std::ranges::count_if(outcome_.ends,
                            [this](const WorkerEnd& e) {
                              return !e.ended || e.code == 0 || e.code == kExitPreempted ||
                                     stopped_as_asked(e);
                            }) +
      std::ranges::count_if(again_, [](const Again& a) { return a.child != nullptr; });
  const bool done =
      std::ranges::any_of(outcome_.ends, [](const WorkerEnd& e) { return e.ended && e.code == 0; });
  return done || well >= rules_.least;
}

void WorkerGroup::find_culprit() {
  if (decided_ || failures_.empty() || may_go_on()) return;
  const auto cause = std::find_if(failures_.begin(), failures_.end(), [this](int i) {
    return outcome_.ends[static_cast<std::size_t>(i)].code != kExitUnavailable;
  });
  if (cause == failures_.end() && rules_.ranks_of_one_run && orderly_end_) {
    failures_.clear();  // they failed because another one had stopped
    return;
  }
  const bool waited = alive() == 0 || (!(stop_asked_ && is_saving()) &&
                                       Clock::now() - *first_failure_ >= rules_.culprit_wait);
  if (cause == failures_.end() && !waited) return;
  outcome_.culprit = cause != failures_.end() ? *cause : failures_.front();
  decided_ = Clock::now();
}

// A rank that hangs does not end by itself, and a scheduler that has asked for the end does not
// wait for long.
void WorkerGroup::end_stragglers() {
  if (!rules_.ranks_of_one_run || !orderly_end_ || decided_ || stragglers_killed_ || is_saving() ||
      Clock::now() - *orderly_end_ < rules_.grace)
    return;
  const long left = alive();
  print_notice(std::to_string(left) + " of " + std::to_string(outcome_.ends.size()) + " workers " +
               (left == 1 ? "has" : "have") + " not ended after the others had: killed");
  stragglers_killed_ = true;
  deliver_all(SIGKILL);
}

void WorkerGroup::end_survivors() {
  if (alive() == 0) return;
  end_stragglers();
  const auto now = Clock::now();
  if (stop_asked_) {
    // They have already been asked to stop, and a second signal would abort their save.
    const auto since = now - *stop_asked_;
    if (since >= rules_.stop_grace || (decided_ && now - *decided_ >= 2 * rules_.grace))
      deliver_all(SIGKILL);
    if (since >= std::chrono::seconds(10) && !reminded_) {
      reminded_ = true;
      print_notice("still waiting for " + std::to_string(alive()) + " of " +
                   std::to_string(outcome_.ends.size()) +
                   " workers to end; another signal kills them");
    }
    return;
  }
  if (!decided_) return;
  const auto since = now - *decided_;
  if (since >= rules_.grace) {
    deliver_all(SIGKILL);
  } else if (told_ == 0 || (told_ == 1 && since >= rules_.grace / 2)) {
    ++told_;
    deliver_all(SIGTERM);
  }
}

void WorkerGroup::deliver(int index, int signal) const {
  const WorkerEnd& end = outcome_.ends[static_cast<std::size_t>(index)];
  if (rules_.deliver)
    rules_.deliver(index, end.pid, signal);
  else
    kill(-end.pid, signal);
}

void WorkerGroup::deliver_all(int signal) {
  if (signal == SIGKILL && !killed_at_) killed_at_ = Clock::now();
  for (std::size_t i = 0; i < outcome_.ends.size(); ++i)
    if (!outcome_.ends[i].ended) deliver(static_cast<int>(i), signal);
}

void WorkerGroup::finish() {
  if (outcome_.ends.empty() || finished_) return;
  finished_ = true;
  if (rules_.kill_orphans)
    for (const WorkerEnd& end : outcome_.ends) kill(-end.pid, SIGKILL);
  guard_.forget_workers();  // before their pids can be reused
  for (WorkerEnd& end : outcome_.ends) {
    const auto deadline = base::deadline_in(kKillTimeout);
    pid_t reaped = 0;
    while ((reaped = waitpid(end.pid, nullptr, end.ended ? 0 : WNOHANG)) == 0 &&
           !base::has_passed(deadline))
      usleep(1000);
    end.ended = true;
  }
}

}  // namespace tools
