// Connects the links of one communicator: exchanges keys, addresses, and greetings that
// authenticate both ends of a link.
//
//   connector -> listener   the number of the attempt, MAC(secret, "engine zmq hello", link, keys,
//                           number)
//
//   listener -> connector   the same, made for the other direction
//
//   connector -> store      the link is established
//
// A changed byte costs an attempt but never the set-up: the connector retries, with a new
// connection, until it has the reply to its last greeting; the listener answers every greeting
// until the store reports that the link is established. By then the connector may have sent more,
// which the listener keeps for the first call.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "backends/backend.h"
#include "backends/store/tcp_socket.h"
#include "backends/transport/zmq/zmq_guard.h"
#include "backends/transport/zmq/zmq_links.h"
#include "io/base/time/deadline.h"

namespace backends {

class ZmqLinks::SetUp {
 public:
  SetUp(ZmqLinks& links, const BackendContext& context);
  // Collective. REQUIRES: called once.
  void run();

 private:
  // A record that a rank publishes for one peer: its key and, if it listens for this peer,
  // mechanism and address.
  struct Record {
    std::string key, mechanism, endpoint;
  };
  struct End {
    Record peer;
    bool stands = false;
    std::uint32_t attempt = 0;  // connector: the current one; listener: the last that it answered
    base::Deadline until{};     // connector: of the attempt
    Socket unbound;             // listener: its socket until libzmq owns it
  };

  std::string link_text(int from, int to) const;
  std::string record_text(const Record& record, int from, int to) const;
  Record read_record(int from, int to) const;
  void require_same_mechanism(const Record& record, int from) const;
  std::string proof(const char* label, int from, int to, const std::string& more) const;
  std::string password(int from, int to) const;
  std::string hello(int from, int to, std::uint32_t attempt) const;
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
  void stands(int peer);

  ZmqLinks& links_;
  const BackendContext& context_;
  const int rank_, size_;
  std::string key_, secret_key_;  // in Z85
  std::vector<End> ends_;
  ZmqGuard guard_;
};

}  // namespace backends
