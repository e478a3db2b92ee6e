// Starts the program with posix_spawn(3) and reads its output through pipes.
#include "tools/launch/workers/child_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "io/base/files/descriptor.h"
#include "io/base/files/retry_on_eintr.h"
#include "io/base/machine/environment.h"
#include "io/base/text/text_parts.h"
#include "io/base/time/deadline.h"

namespace tools {
namespace {

constexpr std::size_t kMaxOutput = 1 << 20;
constexpr int kExitPollMs = 5, kStopPollMs = 100;

// The output of a child: its end of the pipe is inherited, ours is not.
struct OutputPipe {
  OutputPipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw std::system_error(errno, std::generic_category(), "cannot make a pipe");
    ours = base::Descriptor(ends[0]);
    childs = base::Descriptor(ends[1]);
  }
  base::Descriptor ours, childs;
  std::string text;

  void read_some() {
    std::array<char, 4096> buffer{};
    const ssize_t n =
        base::retry_on_eintr([&] { return ::read(ours.fd(), buffer.data(), buffer.size()); });
    if (n <= 0) return ours.close();
    text.append(buffer.data(), std::min(static_cast<std::size_t>(n),
                                        kMaxOutput - std::min(kMaxOutput, text.size())));
  }
};

// The child has no blocked signals, even if this process has a SignalInbox.
pid_t start_child(std::vector<std::string>& words, const OutputPipe& out, const OutputPipe& err) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.childs.fd(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.childs.fd(), STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error =
      posix_spawn(&child, words[0].c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw std::system_error(error, std::generic_category(), "cannot run " + words[0]);
  return child;
}

using Stops = std::function<bool()>;

// Waits for the end of both outputs, the deadline, or a stop.
void read_outputs(OutputPipe& out, OutputPipe& err, base::Deadline deadline, const Stops& stops) {
  while ((out.ours || err.ours) && !base::has_passed(deadline) && !stops()) {
    pollfd ready[] = {{out.ours.fd(), POLLIN, 0}, {err.ours.fd(), POLLIN, 0}};
    if (poll(ready, 2, std::min(kStopPollMs, base::milliseconds_left(deadline))) <= 0) continue;
    if (ready[0].revents != 0) out.read_some();
    if (ready[1].revents != 0) err.read_some();
  }
}

std::optional<int> exit_code_by(pid_t child, base::Deadline deadline, const Stops& stops) {
  int status = 0;
  while (base::retry_on_eintr([&] { return waitpid(child, &status, WNOHANG); }) == 0) {
    if (base::has_passed(deadline) || stops()) {
      kill(child, SIGKILL);
      base::retry_on_eintr([&] { return waitpid(child, &status, 0); });
      return std::nullopt;
    }
    poll(nullptr, 0, kExitPollMs);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::string find_program(const std::string& name) {
  for (const std::string& folder : base::split_text(base::environment("PATH"), ':')) {
    const std::string path = folder + "/" + name;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

ProgramResult run_program(std::vector<std::string> words, std::chrono::milliseconds timeout,
                          const std::function<bool()>& stops) {
  const base::Deadline deadline = base::deadline_in(timeout);
  OutputPipe out, err;
  const pid_t child = start_child(words, out, err);
  out.childs.close();
  err.childs.close();
  read_outputs(out, err, deadline, stops);
  const std::optional<int> code = exit_code_by(child, deadline, stops);
  return {code, std::move(out.text), std::move(err.text)};
}

std::string last_line(const std::string& text) {
  const std::vector<std::string> lines = base::split_text(text, '\n');
  const auto last = std::find_if(lines.rbegin(), lines.rend(), [](const std::string& line) {
    return !base::trimmed(line).empty();
  });
  return last == lines.rend() ? "" : std::string(base::trimmed(*last));
}

}  // namespace tools
