// A pseudo-terminal, read until nobody writes to it any more.
#include "tests/support/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <stdexcept>

#include "tests/support/test_support.h"
#include "tests/support/time_limits.h"

namespace test_support {

TerminalResult engine_on_terminal(std::vector<std::string> arguments, unsigned short columns,
                                  const std::map<std::string, std::string>& environment) {
  TerminalResult result;
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) return {0, ""};
  const int slave = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (columns > 0) {
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 24;
    ioctl(slave, TIOCSWINSZ, &size);
  }
  arguments.insert(arguments.begin(), engine_binary());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    dup2(slave, STDOUT_FILENO);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(slave);
  const auto start = std::chrono::steady_clock::now();
  for (bool open = true; open;) {
    pollfd wanted{terminal, POLLIN, 0};
    std::array<char, 4096> piece;
    if (poll(&wanted, 1, 100) > 0) {
      const ssize_t n = read(terminal, piece.data(), piece.size());
      open = n > 0;  // else nobody has the other side open any more
      if (open) result.text.append(piece.data(), static_cast<std::size_t>(n));
    }
    if (is_past(start, std::chrono::seconds(60))) kill(child, SIGKILL);
  }
  close(terminal);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace test_support
