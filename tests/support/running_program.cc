// Starts a program with its output in files, and ends it.
#include "tests/support/running_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

namespace test_support {

Running::Running(const std::vector<std::string>& argv,
                 const std::map<std::string, std::string>& environment) {
  write_text(folder_ / "out", "");
  write_text(folder_ / "err", "");
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ > 0) return;
  setpgid(0, 0);
  dup2(open("/dev/null", O_RDONLY), 0);
  dup2(open((folder_ / "out").c_str(), O_WRONLY | O_APPEND), 1);
  dup2(open((folder_ / "err").c_str(), O_WRONLY | O_APPEND), 2);
  become(argv, environment);
}

Running::~Running() {
  if (pid_ <= 0) return;
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Running::writes_out(const std::string& part) const {
  return eventually([&] { return out().find(part) != std::string::npos; });
}

bool Running::writes_err(const std::string& part) const {
  return eventually([&] { return err().find(part) != std::string::npos; });
}

int Running::wait(std::chrono::milliseconds timeout) {
  int status = 0;
  const bool ended = eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, timeout);
  if (!ended) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  pid_ = 0;
  return !ended ? 124 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace test_support
