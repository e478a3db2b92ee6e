// Forks the ranks, reads their output and kills them at the end.
#include "tests/backends/faults/fault_ranks.h"

#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "backends/backend_error.h"

namespace fault_ranks {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
constexpr auto kWaitTime = 60s;  // scaled; for what hangs
constexpr int kRoundsOfWork = 5;

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
  const auto ms = [&](std::chrono::milliseconds base) {
    return static_cast<int>(scaled(base).count());
  };
  backends::GroupOptions o = group_harness::options_for(rank, s_.world_size, s_.listener.port);
  group_harness::choose_backend(o, s_.backend);
  o.heartbeat_ms = static_cast<int>(heartbeat().count());
  o.rendezvous_timeout_ms = o.timeout_ms = ms(10 * kWaitTime);
  if (rank == 0 && who() == 0) o.listen.fd = s_.listener.fd;
  return o;
}

void Rank::join(const backends::GroupOptions& options) {
  group_ = backends::join_group(options);
  communicator_ = group_->make_communicator();
}

void Rank::wait_for(const std::string& what, const std::function<bool()>& condition) const {
  if (!test_support::eventually(condition, kWaitTime))
    throw std::runtime_error("waited in vain for " + what);
}

void Rank::wait_for(Event event, int times) const {
  wait_for("event " + std::to_string(static_cast<int>(event)), [&] { return of(event) >= times; });
}

void Rank::barrier() const {
  const int before = of(Event::kArrivedAtBarrier)++;
  wait_for(Event::kArrivedAtBarrier, (before / s_.processes + 1) * s_.processes);
}

void Rank::wait_for_work() const {
  wait_for("this rank's work",
           [&] { return s_.progress->rounds[static_cast<std::size_t>(who())] >= kRoundsOfWork; });
}

void Rank::work(int rounds) {
  std::vector<std::int64_t> data(50'000);
  for (int round = 0; round < rounds; ++round) {
    if (round % 50 == 0) group_->set_activity("step " + std::to_string(round));
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = round + static_cast<std::int64_t>(i) * who();
    communicator_->all_reduce(data.data(), data.size(), base::DType::kI64,
                              backends::ReduceOp::kSum);
    const int ranks = s_.world_size * (s_.world_size - 1) / 2;
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (data[i] !=
          static_cast<std::int64_t>(round) * s_.world_size + static_cast<std::int64_t>(i) * ranks)
        throw std::runtime_error("wrong sum at " + std::to_string(i) + " in round " +
                                 std::to_string(round));
    }
    group_->check();
    ++s_.progress->rounds[static_cast<std::size_t>(who())];
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
    if (ntohs(peer.sin_port) == port() || backends::local_endpoint(fd).port == port()) continue;
    found.push_back(fd);
  }
  if (folder != nullptr) closedir(folder);
  return found;
}

RankProcesses::RankProcesses(const std::string& backend, int world_size, int count,
                             const std::function<void(Rank&)>& body, bool holds_port)
    : listener_(group_harness::open_listener()) {
  void* const memory =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap");
  progress_ = new (memory) Progress;
  const pid_t parent = getpid();
  for (int who = 0; who < count; ++who) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      if (who != 0) close(listener_.fd);
      std::string last;
      {
        Rank rank({who, count, world_size, backend, listener_, scaled_, progress_});
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
  munmap(progress_, sizeof *progress_);
}

bool RankProcesses::all_work() const {
  const auto works = [](const std::atomic<int>& rounds) { return rounds >= kRoundsOfWork; };
  return test_support::eventually(
      [&] {
        return std::all_of(progress_->rounds.begin(), progress_->rounds.begin() + size(), works);
      },
      kWaitTime);
}

void RankProcesses::send_signal(int who, int signal) const { kill(pid(who), signal); }

std::string RankProcesses::outcome(int who) {
  Process& p = processes_[static_cast<std::size_t>(who)];
  const auto start = Clock::now();
  while (!p.ended) {
    pollfd polled{p.out, POLLIN, 0};
    if (poll(&polled, 1, 20) <= 0) {
      if (test_support::is_past(start, kWaitTime)) return "hangs (\"" + p.text + "\")";
      continue;
    }
    char buffer[4096];
    const ssize_t n = read(p.out, buffer, sizeof buffer);
    if (n > 0) p.text.append(buffer, static_cast<std::size_t>(n));
    p.ended = n <= 0;
  }
  return p.text.substr(0, p.text.find('\n'));
}

}  // namespace fault_ranks
