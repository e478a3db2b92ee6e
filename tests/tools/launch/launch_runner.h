// For tests of the launcher: programs that run beside the test, and searches for processes.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/running_program.h"

namespace test_support {

// Runs `engine launch` with these arguments to its end.
CommandResult launch(std::vector<std::string> arguments,
                     const std::map<std::string, std::string>& environment = {},
                     int timeout_ms = 60'000);

// Pids of live processes with `mark` in their command line (zombies have none).
std::vector<pid_t> processes_with(const std::string& mark);
// A unique, long argument for sleep(1), by which the processes of one test are found.
std::string unique_sleep();
std::size_t sleepers(const std::string& mark);  // the number of processes `sleep MARK`
std::string last_line(const std::string& text);
// Shell commands that wait until the process whose id another one writes to `file` has ended.
std::string wait_for_end_of(const std::string& file);

}  // namespace test_support
