// Limits the unauthenticated connections to a rank's listeners during set-up: libzmq keeps each for
// 30 s, and each uses a descriptor, of which a process may have few.
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
  // A handshake takes moments. The limits grow with the number of listeners, because more ranks
  // than that may connect from one address at once.
  static constexpr std::size_t kMaxUnprovenPerAddress = 64, kMaxUnproven = 128;

  ZmqGuard(zmq::context_t& context, int listeners);
  // Closes the unauthenticated connections.
  ~ZmqGuard();
  ZmqGuard(const ZmqGuard&) = delete;
  ZmqGuard& operator=(const ZmqGuard&) = delete;

  // REQUIRES: called before `listening` is bound to the listener `fd`; it outlives this.
  void watch(zmq::socket_t& listening, int fd);
  // Returns items that become readable when count() has work to do.
  std::vector<zmq::pollitem_t> poll_items();
  // Counts the new connections, and closes the oldest ones if too many are open, from one address
  // or in total. A rank whose connection is closed connects again.
  void count();
  // Stops counting the connection with libzmq's descriptor: it belongs to a rank.
  void proven(int fd);
  // Closes the unauthenticated connections.
  void end_unproven();

 private:
  struct Watched {
    zmq::socket_t& listening;
    zmq::socket_t events;  // libzmq's events about `listening`
    std::string endpoint;
  };
  struct Unproven {
    int fd = -1;  // libzmq's descriptor
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
