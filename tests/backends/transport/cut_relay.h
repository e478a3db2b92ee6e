// A process on the path between two ranks that cuts their connections: what is under way is lost.
// The ranks find it because the store gives its address in place of the listening rank's.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/store/tcp_socket.h"
#include "io/base/time/deadline.h"
#include "tests/support/time_limits.h"

namespace link_job {

// Cuts all connections when `after` bytes have passed since the last cut, and then closes the next
// `refused` connections at once.
struct Cut {
  std::size_t after;
  int refused = 0;
};

class CutRelay {
 public:
  static constexpr const char* kHost = "127.0.0.2";  // with the listening rank's own port

  // `at_once`: bytes of the listening rank that are passed on in one turn; few make it slow.
  CutRelay(int port, std::vector<Cut> cuts, std::size_t at_once = kBytesAtOnce)
      : port_(port),
        cuts_(std::move(cuts)),
        at_once_(at_once),
        listener_(backends::listen_on({kHost, port})) {
    thread_ = std::thread([this] { run(); });
  }
  ~CutRelay() {
    stopping_ = true;
    thread_.join();
  }
  CutRelay(const CutRelay&) = delete;
  CutRelay& operator=(const CutRelay&) = delete;

  std::size_t cuts_made() const { return made_; }
  std::size_t bytes_passed() const { return all_passed_; }

 private:
  static constexpr std::size_t kBytesAtOnce = 16384;
  struct Link {
    std::array<backends::Socket, 2> ends;  // connector, listener
    std::array<std::string, 2> pending;    // of each end, not yet taken by the other
    bool over = false;
  };

  void run() {
    while (!stopping_) {
      std::vector<pollfd> polled{{listener_.fd(), POLLIN, 0}};
      for (const Link& link : links_) {
        for (std::size_t end = 0; end < 2; ++end) {
          const int events = (link.pending[end].empty() ? POLLIN : 0) |
                             (link.pending[1 - end].empty() ? 0 : POLLOUT);
          polled.push_back({link.ends[end].fd(), static_cast<short>(events), 0});
        }
      }
      if (poll(polled.data(), polled.size(), 5) <= 0) continue;
      std::size_t i = 1;
      for (Link& link : links_) {
        for (std::size_t end = 0; end < 2; ++end, ++i) {
          if (polled[i].revents != 0 && !link.over) serve(link, end);
        }
      }
      std::erase_if(links_, [](const Link& link) { return link.over; });
      if (made_ < cuts_.size() && passed_ >= cuts_[made_].after) cut();
      if (polled[0].revents != 0) accept_one();
    }
  }

  void cut() {
    refused_ = cuts_[made_].refused;
    passed_ = 0;
    links_.clear();
    ++made_;
  }

  void accept_one() {
    Link link;
    link.ends[0] = backends::Socket(accept(listener_.fd(), nullptr, nullptr));
    if (refused_ > 0) {
      --refused_;
      return;
    }
    std::string reason;  // the rank may have ended meanwhile
    link.ends[1] = backends::connect_to(
        {"127.0.0.1", port_}, base::deadline_in(test_support::deadline(std::chrono::seconds(60))),
        reason);
    if (link.ends[1]) links_.push_back(std::move(link));
  }

  // No connection waits for another one.
  void serve(Link& link, std::size_t end) {
    flush(link, 1 - end);
    if (link.over || !link.pending[end].empty()) return;
    char bytes[kBytesAtOnce];
    const std::size_t most = end == 1 ? at_once_ : sizeof bytes;
    const ssize_t n = recv(link.ends[end].fd(), bytes, most, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    link.over = n <= 0;
    if (link.over) return;
    passed_ += static_cast<std::size_t>(n);
    all_passed_ += static_cast<std::size_t>(n);
    link.pending[end].assign(bytes, static_cast<std::size_t>(n));
    flush(link, end);
  }

  void flush(Link& link, std::size_t from) {
    std::string& rest = link.pending[from];
    while (!rest.empty()) {
      const ssize_t n =
          send(link.ends[1 - from].fd(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      link.over = n <= 0;
      if (link.over) return;
      rest.erase(0, static_cast<std::size_t>(n));
    }
  }

  const int port_;
  const std::vector<Cut> cuts_;
  const std::size_t at_once_;
  backends::Socket listener_;
  std::list<Link> links_;
  std::size_t passed_ = 0;
  int refused_ = 0;
  std::atomic<std::size_t> made_{0}, all_passed_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace link_job
