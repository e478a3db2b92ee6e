// Authenticates incoming ZeroMQ connections: libzmq sends a request (ZAP, RFC 27) to this handler
// for each connection, and the handler allows or denies it.
//
// There are two mechanisms, depending on the listening socket:
//  - CURVE: the connection's key must be the one that the expected rank has published. Encrypted.
//  - PLAIN, on a loopback address only: the password must be the keyed hash that only members of
//    the job can compute.
#pragma once

#include <map>
#include <string>
#include <thread>
#include <zmq.hpp>

namespace backends {

class ZapHandler {
 public:
  struct Peer {
    std::string key;       // CURVE, 32 bytes
    std::string password;  // PLAIN
  };

  // Holds connections to sockets of `context` from now on until serve().
  explicit ZapHandler(zmq::context_t& context);
  // REQUIRES: the context was shut down, which ends the thread.
  ~ZapHandler();
  ZapHandler(const ZapHandler&) = delete;
  ZapHandler& operator=(const ZapHandler&) = delete;

  // Starts answering. `peers`: the allowed peer for each ZAP domain (listening socket).
  void serve(std::map<std::string, Peer> peers);

 private:
  void answer_all();
  bool is_allowed(const std::string& domain, const std::string& mechanism,
                  const std::string& credential) const;

  zmq::socket_t requests_;
  std::map<std::string, Peer> peers_;
  std::thread thread_;  // last member, because it uses the others
};

}  // namespace backends
