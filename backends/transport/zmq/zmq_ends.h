// Makes the two ends of a link of ZeroMQ: keys, addresses, sockets, and greetings that
// authenticate both ends. ZmqLinks::SetUp and then ZmqLinks::Repair use it, one after the other.
//
//   connector -> listener   the number of the attempt, the bytes received so far, MAC(secret,
//                           "engine zmq hello", link, keys, both numbers)
//
//   listener -> connector   the same, made for the other direction
//
// A changed byte costs an attempt: the connector retries, with a new connection, until it has the
// reply to its last greeting, and the listener answers the first greeting of each newer attempt.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "backends/backend.h"
#include "backends/store/tcp_socket.h"
#include "backends/transport/repair/link_machine.h"
#include "backends/transport/zmq/zmq_guard.h"
#include "backends/transport/zmq/zmq_links.h"
#include "io/base/time/deadline.h"

namespace backends {

// Makes the kernel drop packets to this listener, except those of established connections.
void take_no_more_connections(int listener);

class ZmqLinks::Ends {
 public:
  // A record that a rank publishes for one peer: its key and, if it listens for this peer,
  // mechanism and address.
  struct Record {
    std::string key, mechanism, endpoint;
  };
  // The numbers of a greeting.
  struct Greeting {
    std::uint32_t attempt = 0;
    std::uint64_t received = 0;  // bytes
  };
  struct End {
    Record peer;
    LinkMachine machine;
    Socket unbound;       // listener: its socket until libzmq owns it
    std::string listens;  // listener: its address
  };

  Ends(ZmqLinks& links, const BackendContext& context);
  const BackendContext& context() const { return context_; }
  ZmqGuard& guard() { return guard_; }
  End& end(int peer) { return ends_[static_cast<std::size_t>(peer)]; }

  // Collective: publishes keys and addresses, reads those of the others, and listens. REQUIRES:
  // called once, before all below.
  void exchange_records();
  // The name of a link in the store and in proofs.
  std::string link_text(int from, int to) const;
  // Makes a socket that is not connected.
  zmq::socket_t make_socket() const;
  // For the connecting end: starts an attempt if one is due.
  void connect(int peer);
  // Returns the peer's next greeting of a connection that may be used, which is then the link's;
  // nullopt if none has arrived. For the listening end it has been answered.
  std::optional<Greeting> next_greeting(int peer);
  // Waits for messages of peers whose links need a connection, and for processes that connect.
  void wait(std::chrono::milliseconds time);
  // Any thread.
  bool is_hello(const zmq::message_t& message, int from) const {
    return read_hello(message, from).has_value();
  }

 private:
  std::string record_text(const Record& record, int from, int to) const;
  Record read_record(int from, base::Deadline deadline) const;
  void require_same_mechanism(const Record& record, int from) const;
  std::string proof(const char* label, int from, int to, const std::string& more) const;
  std::string password(int from, int to) const;
  std::string hello(int from, int to, const Greeting& greeting) const;
  // Returns nullopt for any other message.
  std::optional<Greeting> read_hello(const zmq::message_t& message, int from) const;
  const std::string& key_of(int rank) const;
  std::string listen(int peer);
  void publish();
  void read_records();
  void bind(int peer);
  bool is_newest(int peer, const Greeting& theirs);
  bool has_greeted(int peer);
  void take(int peer, const Greeting& theirs, int fd);
  void use_connection(int peer, int fd);

  ZmqLinks& links_;
  const BackendContext context_;
  const int rank_, size_;
  std::string key_, secret_key_;  // in Z85
  std::vector<End> ends_;
  ZmqGuard guard_;
};

}  // namespace backends
