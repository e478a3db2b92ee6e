// The two-step signal handler.
#include "tools/stop_signals.h"

#include <signal.h>
#include <unistd.h>

namespace tools {
namespace {

std::atomic<int> stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  if (stop_signal.exchange(signal) == 0) return;
  _exit(128 + signal);
}

}  // namespace

const std::atomic<int>& install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return stop_signal;
}

}  // namespace tools
