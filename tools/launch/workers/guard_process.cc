// Implements the guard, which reads records until the connection breaks, and then cleans up.
//
// A process that is killed with SIGKILL cannot clean up after itself. But the kernel closes its
// file descriptors in any case: the guard holds the other end of a socket pair, and end of file on
// it without a preceding "done" record means that the parent is dead. The guard must not hold other
// ends of the parent's descriptors, so it closes all inherited ones.
#include "tools/launch/workers/guard_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "io/base/time/deadline.h"

namespace tools {
namespace {

constexpr std::size_t kMaxRecord = 4096;
constexpr auto kEndTime = std::chrono::seconds(2);  // limit for a guard that has received "done"
constexpr char kGroup = 'g', kForget = 'f', kFile = 'u', kDone = 'd';

void close_all_but(int kept) {
#ifdef SYS_close_range
  const bool below =
      kept == 0 || syscall(SYS_close_range, 0U, static_cast<unsigned>(kept - 1), 0) == 0;
  if (below && syscall(SYS_close_range, static_cast<unsigned>(kept + 1), ~0U, 0) == 0) return;
#endif
  const long max_fd = sysconf(_SC_OPEN_MAX);
  for (int fd = 0; fd < (max_fd > 0 && max_fd < 65536 ? max_fd : 65536); ++fd)
    if (fd != kept) close(fd);
}

void pause_10_ms() {
  const timespec pause{.tv_sec = 0, .tv_nsec = 10'000'000};
  nanosleep(&pause, nullptr);
}

// SIGKILL reaches all processes of the group, and none can fork with it pending; it is repeated for
// processes that join from outside. The guard does not wait until all are gone: zombies count, and
// only init decides when it reaps them.
void kill_groups(const std::vector<pid_t>& groups) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    for (const pid_t group : groups) kill(-group, SIGKILL);
    pause_10_ms();
  }
}

[[noreturn]] void keep_guard(int line, bool kill_orphans, pid_t owner) {
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  close_all_but(line);
  if (chdir("/") != 0) _exit(1);  // keeps no folder busy
  std::vector<pid_t> groups;
  std::vector<std::string> files;
  char record[kMaxRecord];
  for (;;) {
    const ssize_t n = recv(line, record, sizeof record, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && getppid() == owner) {  // e.g. out of memory: no reason to kill the workers
      pause_10_ms();
      continue;
    }
    if (n <= 0) break;
    const std::string text(record + 1, static_cast<std::size_t>(n - 1));
    if (record[0] == kDone) _exit(0);
    if (record[0] == kForget && text.empty()) groups.clear();
    if (record[0] == kForget && !text.empty())
      std::erase(groups, static_cast<pid_t>(std::atoi(text.c_str())));
    if (record[0] == kGroup) groups.push_back(static_cast<pid_t>(std::atoi(text.c_str())));
    if (record[0] == kFile) files.push_back(text);
  }
  if (kill_orphans) kill_groups(groups);
  for (const std::string& file : files) unlink(file.c_str());
  _exit(0);
}

void send_record(int line, char kind, const std::string& text) {
  const std::string record = kind + text;
  // If the guard was killed, the loop that waits for children detects and reports it.
  while (send(line, record.data(), record.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

}  // namespace

GuardProcess::GuardProcess(bool kill_orphans) : owner_(getpid()), kill_orphans_(kill_orphans) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot make a socket pair");
  // The child inherits its name, so that no tool ever shows it as a worker.
  char own_name[16] = {};
  prctl(PR_GET_NAME, own_name);
  prctl(PR_SET_NAME, "engine-guard");
  pid_ = fork();
  if (pid_ != 0) prctl(PR_SET_NAME, own_name);
  if (pid_ == 0) {
    close(ends[0]);
    keep_guard(ends[1], kill_orphans, owner_);
  }
  line_ = backends::Socket(ends[0]);
  close(ends[1]);
  if (pid_ < 0)
    throw std::system_error(errno, std::generic_category(), "cannot fork the guard process");
}

GuardProcess::~GuardProcess() {
  if (getpid() != owner_ || pid_ <= 0) return;
  send_record(line_.fd(), kDone, "");
  line_.close();
  // The guard may have been stopped: continue it, and kill it if that does not help.
  kill(pid_, SIGCONT);
  const base::Deadline deadline = base::deadline_in(kEndTime);
  const auto ended = [&](int flags) {
    const pid_t child = waitpid(pid_, nullptr, flags);
    return child == pid_ || (child < 0 && errno != EINTR);
  };
  while (!ended(WNOHANG)) {
    if (base::has_passed(deadline)) {
      kill(pid_, SIGKILL);
      while (!ended(0)) {
      }
      return;
    }
    const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

void GuardProcess::enter_worker(pid_t parent) {
  setpgid(0, 0);
  if (kill_orphans_) prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (kill_orphans_ && getppid() != parent) _exit(1);  // it died before prctl() took effect
  send_record(line_.fd(), kGroup, std::to_string(getpid()));
  line_.close();
}

void GuardProcess::forget_workers() { send_record(line_.fd(), kForget, ""); }

void GuardProcess::forget_worker(pid_t pid) {
  send_record(line_.fd(), kForget, std::to_string(pid));
}

void GuardProcess::remove_if_killed(const std::string& path) {
  if (path.size() >= kMaxRecord - 1)
    throw std::runtime_error("the path of a temporary file is too long: " + path);
  send_record(line_.fd(), kFile, path);
}

}  // namespace tools
