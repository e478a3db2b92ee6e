// SIGINT, SIGTERM and SIGHUP: the first asks for an orderly stop, the second ends the process at
// once (unless it is the first one heard again through the parent, or a SIGHUP: a session that is
// closed sends several). A SIGHUP that is ignored (nohup) stays ignored.
#pragma once

#include <signal.h>

#include <atomic>
#include <span>

namespace tools {

// Installs the handlers, for these signals too, and returns the flag: 0, or the number of the
// signal that asked to stop first.
const std::atomic<int>& install_stop_signals(std::span<const int> more = {});
// That flag; 0 for ever where no handlers were installed.
const std::atomic<int>& stop_signal_flag();

// Asks this rank of an elastic job to leave it, while the others go on.
inline constexpr int kLeaveSignal = SIGUSR2;
void install_leave_signal();
bool is_asked_to_leave();

}  // namespace tools
