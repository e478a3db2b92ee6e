// A process on the path between two ranks: it passes on every byte of their connections and changes
// one. The ranks find it because the store gives its address in place of the listening rank's.
#pragma once

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "backends/store/tcp_socket.h"
#include "io/base/time/deadline.h"
#include "tests/support/time_limits.h"

namespace link_job {

enum class Way { kToListener, kToConnector };

// A byte of the first connection, counted from 0 in its direction.
struct ChangedByte {
  Way way;
  std::size_t at;
};

class LinkRelay {
 public:
  static constexpr const char* kHost = "127.0.0.2";  // with the listening rank's own port

  LinkRelay(int port, ChangedByte changed)
      : port_(port),
        way_(changed.way),
        changed_at_(changed.at),
        listener_(backends::listen_on({kHost, port})) {
    thread_ = std::thread([this] { run(); });
  }
  ~LinkRelay() {
    stopping_ = true;
    thread_.join();
  }
  LinkRelay(const LinkRelay&) = delete;
  LinkRelay& operator=(const LinkRelay&) = delete;

  int port() const { return port_; }
  bool has_changed() const { return has_changed_; }
  // Of the first connection: bytes passed so far.
  std::size_t passed(Way way = Way::kToListener) const { return passed_[index_of(way)]; }
  // Changes this byte in place of the other one.
  void change(ChangedByte changed) {
    changed_at_ = changed.at;
    way_ = changed.way;
  }
  // From now on passes nothing on in this direction.
  void hold(Way way) { held_end_ = static_cast<int>(index_of(way)); }
  // Bytes that have come and wait.
  std::size_t held() const { return held_; }

 private:
  static std::size_t index_of(Way way) { return way == Way::kToListener ? 0 : 1; }
  struct Link {
    std::array<backends::Socket, 2> ends;    // connector, listener
    std::array<std::size_t, 2> passed = {};  // bytes from each
    bool first = false;
  };

  void run() {
    while (!stopping_) {
      std::vector<pollfd> polled{{listener_.fd(), POLLIN, 0}};
      for (const Link& link : links_) {
        for (std::size_t from = 0; from < 2; ++from)
          polled.push_back(
              {link.ends[from].fd(), static_cast<short>(holds(link, from) ? 0 : POLLIN), 0});
      }
      if (poll(polled.data(), polled.size(), 5) <= 0) continue;
      std::size_t i = 1;
      for (Link& link : links_) {
        for (std::size_t from = 0; from < 2; ++from, ++i) {
          if (polled[i].revents != 0 && link.ends[from] && !holds(link, from)) pass(link, from);
        }
      }
      if (polled[0].revents != 0) {
        Link link;
        link.ends[0] = backends::Socket(accept(listener_.fd(), nullptr, nullptr));
        std::string reason;  // the rank may have ended meanwhile
        link.ends[1] = backends::connect_to(
            {"127.0.0.1", port_},
            base::deadline_in(test_support::deadline(std::chrono::seconds(60))), reason);
        if (!link.ends[1]) continue;
        link.first = connections_++ == 0;
        links_.push_back(std::move(link));
      }
    }
  }

  bool holds(const Link& link, std::size_t from) {
    if (held_end_ != static_cast<int>(from)) return false;
    int waiting = 0;
    if (ioctl(link.ends[from].fd(), FIONREAD, &waiting) == 0)
      held_ = static_cast<std::size_t>(waiting);
    return true;
  }

  void pass(Link& link, std::size_t from) {
    char bytes[4096];
    const ssize_t n = recv(link.ends[from].fd(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
      for (backends::Socket& end : link.ends) end.close();
      return;
    }
    const auto count = static_cast<std::size_t>(n);
    const std::size_t way = index_of(way_), at = changed_at_;
    if (link.first && from == way && link.passed[from] <= at && at < link.passed[from] + count) {
      bytes[at - link.passed[from]] ^= 0x10;
      has_changed_ = true;
    }
    link.passed[from] += count;
    if (link.first) passed_[from] = link.passed[from];
    for (std::size_t sent = 0; sent < count;) {
      const ssize_t m = send(link.ends[1 - from].fd(), bytes + sent, count - sent, MSG_NOSIGNAL);
      if (m < 0 && errno == EAGAIN) {
        pollfd p{link.ends[1 - from].fd(), POLLOUT, 0};
        poll(&p, 1, 100);
        continue;
      }
      if (m <= 0) return;
      sent += static_cast<std::size_t>(m);
    }
  }

  const int port_;
  std::atomic<Way> way_;
  std::atomic<std::size_t> changed_at_;
  std::array<std::atomic<std::size_t>, 2> passed_{};
  std::atomic<int> held_end_{-1};  // of a link; -1: none
  std::atomic<std::size_t> held_{0};
  backends::Socket listener_;
  std::list<Link> links_;
  int connections_ = 0;
  std::atomic<bool> stopping_{false}, has_changed_{false};
  std::thread thread_;
};

}  // namespace link_job
