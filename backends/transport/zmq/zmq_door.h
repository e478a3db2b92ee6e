// Who may connect: answers ZeroMQ's own question (ZAP, RFC 27) about every connection that comes
// in.
//
// Two ways to be let in, as the listening socket says:
//  - CURVE: the connection's key must be the one that the expected rank has published. Encrypted.
//  - PLAIN, on a loopback address only: the password must be the keyed hash that only members of
//  the job can make.
#pragma once

#include <map>
#include <string>
#include <thread>
#include <zmq.hpp>

namespace backends {

class ZmqDoor {
 public:
  struct Guest {
    std::string key;       // CURVE, 32 bytes
    std::string password;  // PLAIN
  };

  // From now on connections to sockets of `context` wait for admit().
  explicit ZmqDoor(zmq::context_t& context);
  // REQUIRES: the context was shut down, which ends the thread.
  ~ZmqDoor();
  ZmqDoor(const ZmqDoor&) = delete;
  ZmqDoor& operator=(const ZmqDoor&) = delete;

  // Begins to answer: `guests` by the ZAP domain of the socket that they may connect to.
  void admit(std::map<std::string, Guest> guests);

 private:
  void answer_all();
  bool is_welcome(const std::string& domain, const std::string& mechanism,
                  const std::string& credential) const;

  zmq::socket_t questions_;
  std::map<std::string, Guest> guests_;
  std::thread thread_;  // last: uses the others
};

}  // namespace backends
