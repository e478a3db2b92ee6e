// Connects the links of one communicator: exchanges keys, addresses, and greetings that
// authenticate both ends of a link.
//
//   connector -> listener   the number of the attempt, the bytes received so far, MAC(secret,
//                           "engine zmq hello", link, keys, both numbers)
//
//   listener -> connector   the same, made for the other direction
//
//   connector -> store      the link is established
//
// A changed byte costs an attempt but never the set-up: the connector retries, with a new
// connection, until it has the reply to its last greeting; the listener answers every greeting
// until the store reports that the link is established. By then the connector may have sent more,
// which the listener keeps for the first call.
//
// After a break the same greetings continue the link (zmq_repair.cc): the connector opens a new
// socket for each attempt, and the listener takes the first greeting of an attempt that is newer.
// Each side counts the received bytes of whole messages, and sends the others again.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "backends/backend.h"
#include "backends/store/tcp_socket.h"
#include "backends/transport/zmq/zmq_guard.h"
#include "backends/transport/zmq/zmq_links.h"
#include "io/base/time/deadline.h"

namespace backends {

// Makes the kernel drop packets to this listener, except those of established connections.
void take_no_more_connections(int listener);

class ZmqLinks::SetUp {
 public:
  SetUp(ZmqLinks& links, const BackendContext& context);
  // Collective. REQUIRES: called once.
  void run();
  // After run(), in a thread of its own until `stop` or an abort: restores broken connections for
  // which that succeeds within the patience.
  void repair(const std::stop_token& stop);
  // Any thread.
  bool is_hello(const zmq::message_t& message, int from) const {
    return read_hello(message, from).has_value();
  }

 private:
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
  // The state of a connection that has broken.
  struct Repair {
    bool broken = false, reported = false;
    Deadline since{}, report{}, until{};
    Socket probe;  // connector: a refusal means that the listener's process has ended
    Deadline next_probe{};
  };
  struct End {
    Record peer;
    bool stands = false;
    std::uint32_t attempt = 0;  // connector: the current one; listener: the last that it answered
    unsigned tries = 0;         // connector: attempts for this connection
    base::Deadline until{};     // connector: of the attempt
    Socket unbound;             // listener: its socket until libzmq owns it
    std::string listens;        // listener: its address
    Repair repair;
    bool silent = false;  // the kernel has no answer to what it sends
  };

  std::string link_text(int from, int to) const;
  std::string record_text(const Record& record, int from, int to) const;
  Record read_record(int from, int to) const;
  void require_same_mechanism(const Record& record, int from) const;
  std::string proof(const char* label, int from, int to, const std::string& more) const;
  std::string password(int from, int to) const;
  std::string hello(int from, int to, const Greeting& greeting) const;
  // Returns nullopt for any other message.
  std::optional<Greeting> read_hello(const zmq::message_t& message, int from) const;
  void use_connection(int peer, int fd);
  const std::string& key_of(int rank) const;

  zmq::socket_t make_socket() const;
  std::string listen(int peer);
  void publish();
  void read_records();
  void bind(int peer);
  void try_again(int peer);
  void exchange_hellos();
  void wait(std::chrono::milliseconds time);
  void serve(int peer);
  void serve_connector(int peer, zmq::message_t& message);
  void serve_listener(int peer, zmq::message_t& message);
  bool store_has_it_standing(int peer) const;
  void stands(int peer) { end(peer).stands = true; }
  End& end(int peer) { return ends_[static_cast<std::size_t>(peer)]; }

  // Parts of repair() (zmq_repair.cc).
  void check_links();
  void look_at(int peer);
  void begin_repair(int peer);
  void probe(int peer);
  void resume(int peer, const Greeting& theirs);
  void send_again(int peer, std::uint64_t position);
  void report_break(int peer);
  void give_up(int peer, const std::string& why);
  void rest(const std::stop_token& stop);
  std::string name_of(int peer) const {
    return "rank " + std::to_string(context_.group_rank(peer));
  }

  ZmqLinks& links_;
  const BackendContext context_;
  const int rank_, size_;
  std::string key_, secret_key_;  // in Z85
  std::vector<End> ends_;
  ZmqGuard guard_;
  bool repairing_ = false;
};

}  // namespace backends
