// A process between a rank and the store that sees, passes on, cuts or changes its frames.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/store/store_session.h"
#include "io/base/time/deadline.h"
#include "tests/backends/store/connect_to_port.h"
#include "tests/support/time_limits.h"

namespace group_harness {

// Only for what hangs; the steps take milliseconds.
inline const std::chrono::milliseconds kProxyTimeout =
    test_support::deadline(std::chrono::seconds(60));

inline std::string raw(const backends::Frame& frame) {
  return backends::FrameWriter(frame.type).bytes(frame.payload).finish();
}

inline std::optional<backends::Frame> read_frame(const backends::Socket& socket,
                                                 backends::FrameParser& parser) {
  const auto until = base::deadline_in(kProxyTimeout);
  char buffer[4096];
  for (;;) {
    if (std::optional<backends::Frame> frame = parser.next(backends::kFrameBytes)) return frame;
    pollfd p{socket.fd(), POLLIN, 0};
    if (poll(&p, 1, backends::milliseconds_left(until)) <= 0) return std::nullopt;
    const ssize_t n = recv(socket.fd(), buffer, sizeof buffer, 0);
    if (n <= 0) return std::nullopt;
    parser.append(buffer, static_cast<std::size_t>(n));
  }
}

// Where the proxy cuts the first connection: at the first frame of this type, which is not
// forwarded.
struct Cut {
  backends::FrameType at{};
  bool server_sees_it = true;  // false: towards the server the connection stays open, as when the
                               // network loses the end
  // Only frames that come after one of this type.
  std::optional<backends::FrameType> after = {};
};

// A proxy between one rank and the store that forwards frames and cuts the first connection.
class Proxy {
 public:
  // Called for every frame; may change it.
  using Edit = std::function<void(backends::Frame&)>;

  Proxy(int server_port, std::optional<Cut> cut, int port = 0, Edit edit = {})
      : cut_(cut),
        edit_(std::move(edit)),
        server_port_(server_port),
        listener_(backends::listen_on({"127.0.0.1", port})) {
    thread_ = std::thread([this] { run(); });
  }
  ~Proxy() {
    stopping_ = true;
    thread_.join();
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  int port() const { return backends::local_endpoint(listener_.fd()).port; }
  int connections() const { return connections_; }
  int welcomes() const { return welcomes_; }               // passed on
  void allow(int connections) { allowed_ = connections; }  // leaves those beyond in the queue
  // Holds what the server sends on the newest connection until it welcomes another one; then both
  // arrive at the same time.
  void hold() { holding_ = true; }
  bool holds() const { return holding_; }
  // The first frame of that type that came from the rank.
  std::string recorded(backends::FrameType type) {
    const std::lock_guard lock(mutex_);
    return recorded_.at(type);
  }

 private:
  struct Link {
    backends::Socket client, server;
    backends::FrameParser from_client, from_server;
    bool may_be_cut = false;
  };

  void run() {
    while (!stopping_) {
      std::vector<pollfd> polled;
      polled.push_back({connections_ < allowed_ ? listener_.fd() : -1, POLLIN, 0});
      for (const Link& link : links_) {
        polled.push_back({link.client.fd(), POLLIN, 0});
        polled.push_back({link.client ? link.server.fd() : -1, POLLIN, 0});
      }
      if (poll(polled.data(), polled.size(), 10) <= 0) continue;
      std::size_t i = 1;
      for (Link& link : links_) {
        const bool client = polled[i].revents != 0, server = polled[i + 1].revents != 0;
        i += 2;
        if (client) pass(link, link.client, link.server, link.from_client);
        if (server && link.client) pass(link, link.server, link.client, link.from_server);
      }
      if (polled[0].revents != 0) accept_one();
    }
  }

  void accept_one() {
    backends::Socket client(accept(listener_.fd(), nullptr, nullptr));
    if (!client) return;
    links_.emplace_back();
    links_.back().client = std::move(client);
    links_.back().server = connect_to_port(server_port_);
    links_.back().may_be_cut = connections_++ == 0;
  }

  void pass(Link& link, const backends::Socket& from, const backends::Socket& to,
            backends::FrameParser& parser) {
    char buffer[4096];
    const ssize_t n = recv(from.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return end(link, true);
    parser.append(buffer, static_cast<std::size_t>(n));
    while (std::optional<backends::Frame> frame = parser.next(backends::kFrameBytes)) {
      if (edit_) edit_(*frame);
      if (holding_ && &from == &link.server && holds_back(link, *frame)) continue;
      const bool is_reached = cut_ && (!cut_->after || has_passed(*cut_->after));
      {
        const std::lock_guard lock(mutex_);
        recorded_.emplace(frame->type, raw(*frame));
      }
      if (is_reached && link.may_be_cut && frame->type == cut_->at) {
        return end(link, cut_->server_sees_it);
      }
      if (!backends::write_by(to.fd(), raw(*frame), base::deadline_in(kProxyTimeout)))
        return end(link, true);
      if (frame->type == backends::FrameType::kWelcome) ++welcomes_;
    }
  }

  // Returns true if the frame has been kept.
  bool holds_back(Link& link, const backends::Frame& frame) {
    if (held_link_ == nullptr) held_link_ = &link;
    if (held_link_ == &link) {
      held_ += raw(frame);
      return true;
    }
    if (frame.type == backends::FrameType::kWelcome) {
      (void)backends::write_by(held_link_->client.fd(), held_, base::deadline_in(kProxyTimeout));
      held_link_ = nullptr;
      held_.clear();
      holding_ = false;
    }
    return false;
  }

  bool has_passed(backends::FrameType type) {
    const std::lock_guard lock(mutex_);
    return recorded_.contains(type);
  }

  static void end(Link& link, bool server_sees_it) {
    link.client.close();
    if (server_sees_it) link.server.close();
  }

  const std::optional<Cut> cut_;
  const Edit edit_;
  const int server_port_;
  backends::Socket listener_;
  std::list<Link> links_;
  std::atomic<int> connections_{0}, welcomes_{0}, allowed_{1000};
  std::atomic<bool> stopping_{false}, holding_{false};
  Link* held_link_ = nullptr;
  std::string held_;
  std::mutex mutex_;
  std::map<backends::FrameType, std::string> recorded_;
  std::thread thread_;
};

}  // namespace group_harness
