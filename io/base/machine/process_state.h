// Returns the states of other processes.
#pragma once

#include <sys/types.h>

namespace base {

// Returns true if the process is stopped (SIGSTOP, or a debugger): it handles no signal but SIGKILL
// and SIGCONT. False if there is no such process, or /proc is not there.
bool is_stopped(pid_t pid);

}  // namespace base
