// Implements the guard with the events of libzmq's monitors, which name descriptors.
#include "backends/transport/zmq/zmq_guard.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>

#include "backends/backend_error.h"
#include "backends/store/tcp_socket.h"
#include "backends/transport/zmq/zmq_attempt.h"

namespace backends {
namespace {

ino_t inode_of(int fd) {
  struct stat file {};
  return fstat(fd, &file) == 0 ? file.st_ino : 0;
}

// Returns "" if it is not a socket.
std::string own_endpoint(int fd) {
  try {
    return to_string(local_endpoint(fd));
  } catch (const Error&) {
    return {};
  }
}

// Returns the descriptor of a connection that libzmq has accepted, -1 for another event, or {} if
// no event is left. The layout is that of version 1, which zmq_socket_monitor() requests in every
// release of libzmq since 4.0.
std::optional<int> next_accepted(zmq::socket_t& events) {
  zmq::message_t message;
  const auto receive = [&] { return events.recv(message, zmq::recv_flags::dontwait); };
  if (!attempt_zmq(receive)) return std::nullopt;
  std::uint16_t kind = 0;
  std::int32_t value = -1;
  if (message.size() == sizeof kind + sizeof value) {
    std::memcpy(&kind, message.data(), sizeof kind);
    std::memcpy(&value, message.data<char>() + sizeof kind, sizeof value);
  }
  if (message.more()) static_cast<void>(attempt_zmq(receive));  // the listener's address
  return kind == ZMQ_EVENT_ACCEPTED ? value : -1;
}

}  // namespace

ZmqGuard::ZmqGuard(zmq::context_t& context, int listeners)
    : context_(context),
      max_per_address_(
          std::max(kMaxUnprovenPerAddress, 2 * static_cast<std::size_t>(std::max(listeners, 0)))),
      max_in_all_(std::max(kMaxUnproven, 2 * max_per_address_)) {}

void ZmqGuard::end_unproven() {
  count();
  for (const Unproven& connection : unproven_) end(connection);
  unproven_.clear();
}

ZmqGuard::~ZmqGuard() {
  try {
    end_unproven();
  } catch (const zmq::error_t&) {
    // The context has ended.
  }
  // Stop the monitors before the events are closed, or libzmq would wait for a reader.
  for (Watched& w : watched_) zmq_socket_monitor(w.listening.handle(), nullptr, 0);
}

void ZmqGuard::watch(zmq::socket_t& listening, int fd) {
  static std::atomic<std::uint64_t> next{0};
  const std::string place = "inproc://engine-zmq-guard-" + std::to_string(next++);
  if (zmq_socket_monitor(listening.handle(), place.c_str(), ZMQ_EVENT_ACCEPTED) != 0)
    throw zmq::error_t();
  watched_.push_back(
      {listening, zmq::socket_t(context_, zmq::socket_type::pair), own_endpoint(fd)});
  zmq::socket_t& events = watched_.back().events;
  events.set(zmq::sockopt::linger, 0);
  events.set(zmq::sockopt::rcvhwm, 0);  // libzmq's thread does not wait for a reader
  events.connect(place);
}

std::vector<zmq::pollitem_t> ZmqGuard::poll_items() {
  std::vector<zmq::pollitem_t> items;
  for (Watched& w : watched_) items.push_back({w.events.handle(), 0, ZMQ_POLLIN, 0});
  return items;
}

void ZmqGuard::count() {
  for (Watched& w : watched_) {
    while (const std::optional<int> fd = next_accepted(w.events)) accepted(*fd, w.endpoint);
  }
}

void ZmqGuard::proven(int fd) {
  std::erase_if(unproven_, [&](const Unproven& u) { return u.fd == fd; });
  proven_.push_back(inode_of(fd));
}

void ZmqGuard::accepted(int fd, const std::string& endpoint) {
  std::erase_if(unproven_, [&](const Unproven& u) { return u.fd == fd; });
  const ino_t inode = inode_of(fd);
  if (own_endpoint(fd) != endpoint) return;  // libzmq has closed it; the number is reused
  if (std::ranges::find(proven_, inode) != proven_.end()) return;  // the event came late
  const std::string peer = peer_text(fd), address = peer.substr(0, peer.rfind(':'));
  std::erase_if(unproven_, [](const Unproven& u) { return inode_of(u.fd) != u.inode; });
  const auto make_room = [this](std::size_t most, const auto& counts) {
    if (static_cast<std::size_t>(std::ranges::count_if(unproven_, counts)) < most) return;
    const auto oldest = std::ranges::find_if(unproven_, counts);
    end(*oldest);
    unproven_.erase(oldest);
  };
  make_room(max_per_address_, [&](const Unproven& u) { return u.address == address; });
  make_room(max_in_all_, [](const Unproven&) { return true; });
  unproven_.push_back({fd, inode, address});
}

// libzmq closes the connection when it reads the end. A copy of the descriptor refers to one file,
// even if libzmq closes its own meanwhile, and another file gets the number.
void ZmqGuard::end(const Unproven& connection) {
  const base::Descriptor copy(fcntl(connection.fd, F_DUPFD_CLOEXEC, 0));
  if (copy && inode_of(copy.fd()) == connection.inode) shutdown(copy.fd(), SHUT_RDWR);
}

}  // namespace backends
