// For tests of the launcher: programs that run beside the test, and looks at what processes there
// are.
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

// A program that was started and not waited for; output goes to a folder of its own. Killed and
// waited for by the destructor.
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
  // 128 + N for signal N; 124 when it had to be killed at the deadline, scaled as in deadline.h.
  int wait(std::chrono::milliseconds patience = std::chrono::seconds(60));

 private:
  TemporaryDirectory folder_;
  pid_t pid_ = 0;
};

// Pids of live processes with `mark` in their command line (zombies have none).
std::vector<pid_t> processes_with(const std::string& mark);
// A number for sleep(1), long and not used by anybody else: finds the sleepers of one test.
std::string unique_sleep();
std::size_t sleepers(const std::string& mark);  // how many processes `sleep MARK` there are
std::string last_line(const std::string& text);

}  // namespace test_support
