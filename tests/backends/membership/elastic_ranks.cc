// The loop of a rank without training.
#include "tests/backends/membership/elastic_ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "backends/backend_error.h"
#include "backends/membership/acceptor_file.h"
#include "backends/secret.h"
#include "tests/backends/group_harness.h"
#include "tests/support/time_limits.h"

namespace elastic_ranks {
namespace {

using backends::Membership;
using backends::MembershipOptions;
using backends::View;

Seen seen_of(const View& view) {
  Seen seen{.generation = view.generation,
            .rank = view.rank,
            .world_size = view.world_size,
            .left = static_cast<int>(view.left.size()),
            .joined = static_cast<int>(view.joined.size()),
            .is_new_member = view.is_new_member,
            .pids = {},
            .at_ns = std::chrono::steady_clock::now().time_since_epoch().count()};
  for (const backends::PeerInfo& peer : view.members) seen.pids.push_back(peer.pid);
  return seen;
}

// Until `goes_on` says no. A view is shown as soon as it is there.
void go_from_view_to_view(Membership& membership, const std::function<void(const View&)>& show,
                          const std::function<bool()>& goes_on) {
  show(membership.first_view());
  while (goes_on()) {
    if (membership.broken() || membership.join_wanted()) show(membership.next_view());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The acceptors of all ranks that this process has made. A rank that dies leaves its host's.
class Acceptors {
 public:
  ~Acceptors() {
    for (const std::string& job : jobs_) {
      try {
        backends::AcceptorFile(job).remove_if_last();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "an acceptor file stays: %s\n", error.what());
      }
    }
  }
  void add(const MembershipOptions& options) {
    const std::lock_guard lock(mutex_);
    jobs_.insert(acceptor_job(options.group));
  }

 private:
  std::mutex mutex_;  // ranks are threads
  std::set<std::string> jobs_;
};
Acceptors acceptors;  // until the process ends; those that are forked end by _exit()

}  // namespace

MembershipOptions options_for(int hint, int min_ranks, int max_ranks, int port) {
  // Ports are used again: what another test, or run, has left behind is of another job.
  static const std::string run = backends::to_hex(backends::random_bytes(8));
  MembershipOptions options;
  options.group = group_harness::options_for(hint, max_ranks, port);
  options.group.job.id = run + testing::UnitTest::GetInstance()->current_test_info()->name();
  options.group.heartbeat_ms = test_support::deadline_ms(300);
  options.group.rendezvous_timeout_ms = test_support::deadline_ms(20'000);
  options.min_ranks = min_ranks;
  options.max_ranks = max_ranks;
  options.last_call_ms = 300;
  acceptors.add(options);
  return options;
}

ThreadRank::ThreadRank(MembershipOptions options) {
  acceptors.add(options);
  thread_ = std::thread([this, options = std::move(options)] { run(options); });
}

ThreadRank::~ThreadRank() { crash(); }

void ThreadRank::run(MembershipOptions options) {
  const auto goes_on = [this] {
    const std::lock_guard lock(mutex_);
    return order_ == Order::kGoOn;
  };
  options.group.cancelled = [=] { return !goes_on(); };
  try {
    Membership membership(std::move(options));
    try {
      go_from_view_to_view(
          membership,
          [this](const View& view) {
            const std::lock_guard lock(mutex_);
            seen_ = seen_of(view);
          },
          goes_on);
    } catch (const backends::CancelledError&) {  // while it waited for a view
      if (order_ != Order::kLeave) throw;
    }
    if (order_ == Order::kLeave) membership.leave();
  } catch (const backends::JobEnded& error) {
    const std::lock_guard lock(mutex_);
    if (!seen_) error_ = error.what();  // a member has finished, as the others have
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    // Others may have left just before this one was told to.
    if (order_ != Order::kLeave) error_ = error.what();
  }
}

void ThreadRank::end(Order order) {
  {
    const std::lock_guard lock(mutex_);
    if (order_ == Order::kGoOn) order_ = order;
  }
  if (thread_.joinable()) thread_.join();
}

void ThreadRank::crash() { end(Order::kCrash); }
void ThreadRank::leave() { end(Order::kLeave); }

std::optional<Seen> ThreadRank::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

std::string ThreadRank::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

ProcessRank::ProcessRank(const MembershipOptions& options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  acceptors.add(options);
  pid_ = fork();
  if (pid_ == 0) {
    alarm(static_cast<unsigned>(test_support::deadline_ms(120'000) / 1000));
    try {
      MembershipOptions mine = options;
      mine.group.notice = [](const std::string& text) {
        std::fprintf(stderr, "%d: %s\n", getpid(), text.c_str());
      };
      Membership membership(mine);
      go_from_view_to_view(
          membership,
          [&](const View& view) {
            const Seen s = seen_of(view);
            std::ostringstream line;
            line << s.generation << ' ' << s.rank << ' ' << s.world_size << ' ' << s.left << ' '
                 << s.joined << ' ' << s.is_new_member << ' ' << s.at_ns;
            for (const int p : s.pids) line << ' ' << p;
            line << '\n';
            [[maybe_unused]] const ssize_t n = write(ends[1], line.str().data(), line.str().size());
          },
          [] { return true; });
    } catch (const std::exception& error) {
      [[maybe_unused]] const ssize_t n = write(2, error.what(), std::string(error.what()).size());
    }
    _exit(1);
  }
  close(ends[1]);
  in_ = ends[0];
  fcntl(in_, F_SETFL, O_NONBLOCK);
}

ProcessRank::ProcessRank(ProcessRank&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      in_(std::exchange(other.in_, -1)),
      buffer_(std::move(other.buffer_)),
      seen_(std::move(other.seen_)) {}

ProcessRank::~ProcessRank() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(in_);
}

void ProcessRank::signal(int number) const { kill(pid_, number); }

std::optional<Seen> ProcessRank::seen() {
  char piece[4096];
  for (ssize_t n = 0; (n = read(in_, piece, sizeof piece)) > 0;)
    buffer_.append(piece, static_cast<std::size_t>(n));
  for (std::size_t end = 0; (end = buffer_.find('\n')) != std::string::npos;) {
    std::istringstream line(buffer_.substr(0, end));
    buffer_.erase(0, end + 1);
    Seen s;
    line >> s.generation >> s.rank >> s.world_size >> s.left >> s.joined >> s.is_new_member >>
        s.at_ns;
    for (int p = 0; line >> p;) s.pids.push_back(p);
    seen_ = std::move(s);
  }
  return seen_;
}

}  // namespace elastic_ranks
