// Handles SIGINT, SIGTERM and SIGHUP: the first asks for an orderly stop, the second ends the
// process at once, unless it repeats the first through the parent, or is a SIGHUP (a session that
// closes sends several) or a SIGXCPU. A SIGHUP that is ignored (nohup) stays ignored.
#pragma once

#include <signal.h>

#include <atomic>
#include <span>

namespace tools {

// Installs the handlers, also for the signals of `more`, and returns the flag: 0, or the number of
// the first signal that asked to stop. With SIGXCPU among them, a limit of CPU time that would kill
// at once sends that signal first.
const std::atomic<int>& install_stop_signals(std::span<const int> more = {});
// Schedulers send these signals before they end a job: SLURM USR1 by convention, SGE and LSF USR2,
// and a limit of CPU time (ulimit -t, SGE's s_cpu) XCPU, repeatedly.
inline constexpr int kSaveSignals[] = {SIGUSR1, SIGUSR2, SIGXCPU};

// Called if the parent of this process ends it after the failure of another rank: a second signal
// of that parent ends it without a notice, since the user has sent none.
void expect_end_by_parent();

// Returns the same flag; always 0 if no handlers were installed.
const std::atomic<int>& stop_signal_flag();

// Asks this rank of an elastic job to leave it, while the others continue.
inline constexpr int kLeaveSignal = SIGUSR2;
void install_leave_signal();
bool is_asked_to_leave();

}  // namespace tools
