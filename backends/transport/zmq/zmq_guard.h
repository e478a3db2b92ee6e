// Limits the connections to a rank's listeners that have not proved themselves, while links are set
// up: libzmq keeps each for 30 s, and each takes a descriptor, of which a process may have few.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <list>
#include <string>
#include <vector>
#include <zmq.hpp>

namespace backends {

class ZmqGuard {
 public:
  // A handshake takes moments. The limits grow with the listeners, because more ranks than that may
  // connect from one address at once.
  static constexpr std::size_t kMaxUnprovenPerAddress = 64, kMaxUnproven = 128;

  ZmqGuard(zmq::context_t& context, int listeners);
  // Closes the connections that have not proved themselves.
  ~ZmqGuard();
  ZmqGuard(const ZmqGuard&) = delete;
  ZmqGuard& operator=(const ZmqGuard&) = delete;

  // REQUIRES: called before `listening` is bound to the listener `fd`; it outlives this.
  void watch(zmq::socket_t& listening, int fd);
  // These become readable when there is something to do.
  std::vector<zmq::pollitem_t> poll_items();
  // Counts the new connections, and closes the oldest ones if too many are open, from one address
  // or in all. A rank whose connection is closed connects again.
  void count();
  // Counts the connection with libzmq's descriptor no more: it is a rank's.
  void proven(int fd);

 private:
  struct Watched {
    zmq::socket_t& listening;
    zmq::socket_t events;  // libzmq's, about `listening`
    std::string endpoint;
  };
  struct Unproven {
    int fd = -1;  // libzmq's
    ino_t inode = 0;
    std::string address;  // the peer's, without its port
  };
  void accepted(int fd, const std::string& endpoint);
  static void end(const Unproven& connection);

  zmq::context_t& context_;
  const std::size_t max_per_address_, max_in_all_;
  std::list<Watched> watched_;
  std::list<Unproven> unproven_;  // the oldest first
  std::vector<ino_t> proven_;
};

}  // namespace backends
