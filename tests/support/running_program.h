// A program that runs beside the test.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"

namespace test_support {

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
  // Waits until it has written this there; false if it does not, within eventually()'s time.
  bool writes_out(const std::string& part) const;
  bool writes_err(const std::string& part) const;
  // 128 + N for signal N; 124 if it had to be killed after `timeout`, scaled.
  int wait(std::chrono::milliseconds timeout = std::chrono::seconds(60));

 private:
  TemporaryDirectory folder_;
  pid_t pid_ = 0;
};

}  // namespace test_support
