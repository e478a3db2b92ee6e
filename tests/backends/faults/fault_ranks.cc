// Forks the ranks, reads their output and kills them at the end.
#include "tests/backends/faults/fault_ranks.h"

#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "backends/backend_error.h"

namespace fault_ranks {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
constexpr auto kLifetime = 20s;  // of a process whose parent has died

std::string run(Rank& rank, const std::function<void(Rank&)>& body) {
  const auto ended = [&](const char* kind, const std::exception& error) {
    rank.abandon(error.what());
    return std::string(kind) + ": " + error.what();
  };
  try {
    body(rank);
    return "done";
  } catch (const backends::PeerError& e) {
    return ended("peer", e);
  } catch (const backends::MismatchError& e) {
    return ended("mismatch", e);
  } catch (const backends::AuthenticationError& e) {
    return ended("authentication", e);
  } catch (const backends::ConfigurationError& e) {
    return ended("configuration", e);
  } catch (const std::exception& e) {
    return ended("other", e);
  }
}

}  // namespace

backends::GroupOptions Rank::options(int rank) const {
  backends::GroupOptions o = group_harness::options_for(rank, world_size_, listener_.port);
  group_harness::choose_backend(o, backend_);
  o.heartbeat_ms = static_cast<int>(heartbeat().count());
  o.rendezvous_timeout_ms = test_support::deadline_ms(6000);
  o.timeout_ms = test_support::deadline_ms(3000);
  if (rank == 0 && who_ == 0) o.listen.fd = listener_.fd;
  return o;
}

void Rank::join(const backends::GroupOptions& options) {
  group_ = backends::join_group(options);
  communicator_ = group_->make_communicator();
  print("ready");
}

void Rank::work(int rounds) {
  std::vector<std::int64_t> data(50'000);
  for (int round = 0; round < rounds; ++round) {
    if (round % 50 == 0) group_->set_activity("step " + std::to_string(round));
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = round + static_cast<std::int64_t>(i) * who_;
    communicator_->all_reduce(data.data(), data.size(), base::DType::kI64,
                              backends::ReduceOp::kSum);
    const int ranks = world_size_ * (world_size_ - 1) / 2;
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (data[i] !=
          static_cast<std::int64_t>(round) * world_size_ + static_cast<std::int64_t>(i) * ranks)
        throw std::runtime_error("wrong sum at " + std::to_string(i) + " in round " +
                                 std::to_string(round));
    }
    group_->check();
  }
  leave();
}

void Rank::leave() {
  communicator_.reset();
  group_->leave();
  group_.reset();
}

void Rank::abandon(const std::string& why) noexcept {
  if (group_) group_->abandon(why);
}

void Rank::print(const std::string& line) const {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t n = write(out_, text.data(), text.size());
}

std::vector<int> Rank::data_connections() const {
  std::vector<int> found;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = folder != nullptr ? readdir(folder) : nullptr) {
    const int fd = std::atoi(entry->d_name);
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    if (fd < 3 || getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0 ||
        peer.sin_family != AF_INET)
      continue;
    if (ntohs(peer.sin_port) == listener_.port ||
        backends::local_endpoint(fd).port == listener_.port)
      continue;
    found.push_back(fd);
  }
  if (folder != nullptr) closedir(folder);
  return found;
}

RankProcesses::RankProcesses(const std::string& backend, int world_size, int count,
                             const std::function<void(Rank&)>& body, bool holds_port)
    : listener_(group_harness::open_listener()) {
  const auto lifetime =
      std::chrono::ceil<std::chrono::seconds>(test_support::deadline(kLifetime)).count();
  for (int who = 0; who < count; ++who) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(static_cast<unsigned>(lifetime));
      if (who != 0) close(listener_.fd);
      std::string last;
      {
        Rank rank(who, backend, world_size, listener_, ends[1]);
        last = run(rank, body);
      }
      last += "\n";
      [[maybe_unused]] const ssize_t n = write(ends[1], last.data(), last.size());
      _exit(0);
    }
    close(ends[1]);
    processes_.push_back({pid, ends[0], "", false});
  }
  if (holds_port)
    held_ = backends::Socket(listener_.fd);
  else
    close(listener_.fd);
}

RankProcesses::~RankProcesses() {
  for (Process& p : processes_) {
    kill(p.pid, SIGKILL);
    waitpid(p.pid, nullptr, 0);
    close(p.out);
  }
}

bool RankProcesses::read_more(Process& p, Clock::time_point start,
                              std::chrono::milliseconds within) {
  pollfd polled{p.out, POLLIN, 0};
  while (poll(&polled, 1, 20) <= 0) {
    if (test_support::is_past(start, within)) return false;
  }
  char buffer[4096];
  const ssize_t n = read(p.out, buffer, sizeof buffer);
  if (n > 0) p.text.append(buffer, static_cast<std::size_t>(n));
  p.ended = n <= 0;
  return n > 0;
}

bool RankProcesses::all_ready() {
  const auto start = Clock::now();
  for (Process& p : processes_) {
    while (p.text.find("ready\n") == std::string::npos) {
      if (!read_more(p, start, 10s)) return false;
    }
  }
  return true;
}

void RankProcesses::send_signal(int who, int signal) const { kill(pid(who), signal); }

std::string RankProcesses::outcome(int who, Clock::time_point start,
                                   std::chrono::milliseconds within) {
  Process& p = processes_[static_cast<std::size_t>(who)];
  while (read_more(p, start, within)) {
  }
  std::string text = p.text;
  if (!text.empty()) text.pop_back();
  const std::string last =
      text.substr(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  return p.ended ? last : "hangs (\"" + last + "\")";
}

}  // namespace fault_ranks
