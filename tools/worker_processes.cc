// Forking, watching and ending the ranks of --spawn.
#include "tools/worker_processes.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "backends/backend_error.h"
#include "engine/train/replica_sync.h"
#include "tools/exit_codes.h"

namespace tools {
namespace {

using Clock = std::chrono::steady_clock;

// What a child says about its failure; in memory shared with the parent.
struct Report {
  std::atomic<int> order;  // 1 = the first child that failed; 0 = no report
  char message[2040];
};
struct Board {
  std::atomic<int> failures;
  Report reports[1];  // one for each child
};

Board* make_board(int count) {
  const std::size_t bytes = sizeof(Board) + sizeof(Report) * static_cast<std::size_t>(count);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + std::to_string(bytes) + " bytes of shared memory");
  return static_cast<Board*>(memory);  // zero-filled
}

int listen_on_loopback(int& port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd, 128) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw backends::PeerError(std::string("cannot listen on 127.0.0.1: ") + std::strerror(errno));
  port = ntohs(address.sin_port);
  return fd;
}

std::string fresh_secret() {
  unsigned char bytes[32];
  if (getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) throw std::runtime_error("getrandom failed");
  std::string hex;
  for (const unsigned char b : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", b);
    hex += digits;
  }
  return hex;
}

[[noreturn]] void run_child(const WorkerPlace& place, pid_t parent, const sigset_t& old_mask, Board* board,
                            const std::function<int(const WorkerPlace&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitInternal);  // the parent died before the line above took effect
  sigprocmask(SIG_SETMASK, &old_mask, nullptr);
  int code = kExitInternal;
  try {
    code = body(place);
  } catch (const std::exception& error) {
    Report& report = board->reports[place.rank];
    // What rank 0 told the others, it says itself.
    const bool told = dynamic_cast<const engine::RemoteError*>(&error) != nullptr;
    std::snprintf(report.message, sizeof report.message, "%s", told ? "" : error.what());
    code = exit_code_of(error);
    report.order.store(board->failures.fetch_add(1) + 1);
  }
  std::cout.flush();
  std::fflush(nullptr);
  _exit(code);
}

struct Child {
  pid_t pid = 0;
  int code = 0;
  bool ended = false;
  bool ended_by_us = false;
};

class Watch {
 public:
  Watch(std::vector<Child>& children, Board* board) : children_(children), board_(board) {}

  int run(const sigset_t& signals) {
    while (alive() > 0) {
      timespec wait{.tv_sec = 0, .tv_nsec = 200'000'000};
      siginfo_t info{};
      const int signal = sigtimedwait(&signals, &info, &wait);
      // A terminal's Ctrl-C has reached the children already; what was sent to this process alone is passed on.
      if ((signal == SIGINT || signal == SIGTERM) && info.si_code == SI_USER) send(signal);
      reap();
      end_survivors();
    }
    print();
    return code_;
  }

 private:
  long alive() const {
    return std::count_if(children_.begin(), children_.end(), [](const Child& c) { return !c.ended; });
  }
  void send(int signal) const {
    for (const Child& c : children_)
      if (!c.ended) kill(c.pid, signal);
  }
  void reap() {
    for (Child& c : children_) {
      int status = 0;
      if (c.ended || waitpid(c.pid, &status, WNOHANG) != c.pid) continue;
      c.ended = true;
      c.ended_by_us = terminated_;
      c.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (c.code != 0 && !first_failure_) {
        first_failure_ = Clock::now();
        code_ = c.code;
      }
    }
  }
  // Survivors name the dead rank themselves within seconds; after that they are stuck.
  void end_survivors() {
    if (!first_failure_ || alive() == 0) return;
    const auto since = Clock::now() - *first_failure_;
    if (since > std::chrono::seconds(15)) {
      send(SIGKILL);
    } else if (since > std::chrono::seconds(10) && !terminated_) {
      terminated_ = true;
      send(SIGTERM);
    }
  }
  // The cause last, where the eye falls: by the order in which children reported, those killed from outside first of all.
  void print() {
    struct Line {
      int order;
      int code;
      std::string text;
    };
    std::vector<Line> lines;
    for (std::size_t r = 0; r < children_.size(); ++r) {
      const Child& c = children_[r];
      if (c.code == 0) continue;
      const Report& report = board_->reports[r];
      const std::string who = "rank " + std::to_string(r) + ": ";
      if (report.order.load() > 0 && report.message[0] == '\0') continue;
      if (report.order.load() > 0) {
        // A rank that fails lets its group go before it reports, so others may miss it and report first.
        const int missed_another = c.code == kExitUnavailable ? static_cast<int>(children_.size()) : 0;
        lines.push_back({report.order.load() + missed_another, c.code, who + report.message});
      } else if (c.code > 128) {
        lines.push_back({c.ended_by_us ? 2 * static_cast<int>(children_.size()) + 1 : 0, c.code,
                         who + "killed by signal " + std::to_string(c.code - 128) + " (" + strsignal(c.code - 128) + ")"});
      }
    }
    std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.order > b.order; });
    if (lines.empty()) return;
    code_ = lines.back().code;
    std::string last_text;
    for (const Line& line : lines) {
      const std::string text = line.text.substr(line.text.find(": ") + 2);
      const bool is_cause = &line == &lines.back();
      if (!is_cause && text == lines.back().text.substr(lines.back().text.find(": ") + 2)) continue;
      // That others miss a rank is news only where the rank could not speak for itself.
      if (!is_cause && line.code == kExitUnavailable && lines.back().order > 0 && lines.back().code != kExitUnavailable) continue;
      std::fprintf(stderr, "engine: error: %s\n", line.text.c_str());
    }
  }

  std::vector<Child>& children_;
  Board* board_;
  int code_ = 0;
  bool terminated_ = false;
  std::optional<Clock::time_point> first_failure_;
};

}  // namespace

int run_worker_processes(int count, const std::function<int(const WorkerPlace&)>& body) {
  int port = 0;
  const int listener = listen_on_loopback(port);
  const std::string secret = fresh_secret();
  Board* board = make_board(count);
  sigset_t signals, old_mask;
  sigemptyset(&signals);
  for (const int s : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&signals, s);
  sigprocmask(SIG_BLOCK, &signals, &old_mask);
  std::fflush(nullptr);
  const pid_t parent = getpid();
  std::vector<Child> children(static_cast<std::size_t>(count));
  for (int r = 0; r < count; ++r) {
    const pid_t pid = fork();
    if (pid == 0) run_child({r, r == 0 ? listener : -1, port, secret}, parent, old_mask, board, body);
    if (pid < 0) {
      const int cause = errno;
      for (const Child& c : children)
        if (c.pid > 0) kill(c.pid, SIGKILL);
      throw std::runtime_error("cannot fork rank " + std::to_string(r) + ": " + std::strerror(cause));
    }
    children[static_cast<std::size_t>(r)].pid = pid;
  }
  close(listener);
  const int code = Watch(children, board).run(signals);
  sigprocmask(SIG_SETMASK, &old_mask, nullptr);
  return code;
}

}  // namespace tools
