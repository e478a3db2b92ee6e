// For tests of the launcher: programs that run beside the test, and searches for processes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"

namespace test_support {

// Runs `engine launch` with these arguments to its end.
CommandResult launch(std::vector<std::string> arguments,
                     const std::map<std::string, std::string>& environment = {},
                     int timeout_ms = 60'000);

// A running program whose output goes to a folder of its own. The destructor kills it.
class Running {
 public:
  explicit Running(const std::vector<std::string>& argv,
                   const std::map<std::string, std::string>& environment = {});
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  pid_t pid() const { return pid_; }
  std::string out() const { return read_text(folder_ / "out"); }
  std::string err() const { return read_text(folder_ / "err"); }
  // 128 + N for signal N; 124 if it had to be killed after `timeout`, scaled.
  int wait(std::chrono::milliseconds timeout = std::chrono::seconds(60));

 private:
  TemporaryDirectory folder_;
  pid_t pid_ = 0;
};

// Pids of live processes with `mark` in their command line (zombies have none).
std::vector<pid_t> processes_with(const std::string& mark);
// A unique, long argument for sleep(1), by which the processes of one test are found.
std::string unique_sleep();
std::size_t sleepers(const std::string& mark);  // the number of processes `sleep MARK`
std::string last_line(const std::string& text);
// Shell commands that wait until the process whose id another one writes to `file` has ended.
std::string wait_for_end_of(const std::string& file);

}  // namespace test_support
