// Implements the two-step signal handler.
#include "tools/launch/workers/stop_signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace tools {
namespace {

constexpr long kEchoMs = 2000;
constexpr long kOneRequestMs = 200;

std::atomic<int> stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);
std::atomic<bool> first_from_parent{false};
std::atomic<long> first_ms{0};
std::atomic<pid_t> first_sender{0};
std::atomic<bool> asked_to_leave{false};
std::atomic<pid_t> ending_parent{0};  // 0: none

long monotonic_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

// A scheduler that stops a job signals every process, and the launcher forwards its own signal: one
// request arrives twice. The same holds for a SIGTERM that comes with a SIGHUP, and for timeout(1),
// which signals a process and then its group.
bool is_echo(int signal, const siginfo_t* info) {
  const long since = monotonic_ms() - first_ms.load();
  const bool from_process = info->si_code == SI_USER;
  if (from_process && info->si_pid == first_sender.load() && signal == stop_signal.load())
    return since <= kOneRequestMs;
  const bool from_parent = from_process && info->si_pid == getppid();
  return (from_parent != first_from_parent.load() || stop_signal.load() == SIGHUP) &&
         since <= kEchoMs;
}

// Signal-safe. A stream without a reader must not delay the end.
void print_abort_notice() {
  constexpr std::string_view kText =
      "engine: a second signal: ended at once, without saving; what was saved before is kept\n";
  pollfd error_stream{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&error_stream, 1, 0) == 1 && (error_stream.revents & POLLOUT) != 0)
    (void)!write(STDERR_FILENO, kText.data(), kText.size());
}

void on_signal(int signal, siginfo_t* info, void*) {
  if (stop_signal.load() == 0) {
    first_from_parent.store(info->si_code == SI_USER && info->si_pid == getppid());
    first_sender.store(info->si_code == SI_USER ? info->si_pid : 0);
    first_ms.store(monotonic_ms());
  }
  int none = 0;
  if (stop_signal.compare_exchange_strong(none, signal)) return;
  // The kernel repeats SIGXCPU every second.
  if (signal == SIGHUP || signal == SIGXCPU || is_echo(signal, info)) return;
  if (info->si_code != SI_USER || info->si_pid != ending_parent.load()) print_abort_notice();
  _exit(128 + signal);
}

// `ulimit -t N` sets both limits of CPU time to N, at which the kernel kills without a warning. The
// soft limit is lowered by a tenth, so that SIGXCPU leaves time to save.
void expect_warning_of_cpu_limit() {
  constexpr rlim_t kMinMargin = 1, kMaxMargin = 30;  // seconds
  rlimit cpu{};
  if (getrlimit(RLIMIT_CPU, &cpu) != 0 || cpu.rlim_max == RLIM_INFINITY ||
      cpu.rlim_cur < cpu.rlim_max)
    return;
  const rlim_t margin = std::clamp(cpu.rlim_max / 10, kMinMargin, kMaxMargin);
  if (cpu.rlim_max <= margin) return;
  cpu.rlim_cur = cpu.rlim_max - margin;
  setrlimit(RLIMIT_CPU, &cpu);
}

void on_leave_signal(int) { asked_to_leave.store(true); }

}  // namespace

const std::atomic<int>& stop_signal_flag() { return stop_signal; }

const std::atomic<int>& install_stop_signals(std::span<const int> more) {
  if (std::ranges::find(more, SIGXCPU) != more.end()) expect_warning_of_cpu_limit();
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction hang_up {};
  sigaction(SIGHUP, nullptr, &hang_up);
  if (hang_up.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  for (const int signal : more) sigaction(signal, &action, nullptr);
  return stop_signal;
}

void expect_end_by_parent() { ending_parent.store(getppid()); }

void install_leave_signal() {
  struct sigaction action {};
  action.sa_handler = on_leave_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(kLeaveSignal, &action, nullptr);
}

bool is_asked_to_leave() { return asked_to_leave.load(); }

}  // namespace tools
