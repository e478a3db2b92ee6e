// Builds a SocketMesh: one loop connects, accepts and authenticates until every connection is
// established.
//
// The rank with the higher number connects to the other. With a relay, both ends of a connection
// that is not established after kDirectTime also connect to the relay; the higher rank then takes
// what comes first. Only it decides: the lower rank counts a connection when the last byte of the
// handshake has come, which the higher one sends on one connection.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "backends/relay/relay_message.h"
#include "backends/transport/socket/mesh_proof.h"
#include "backends/transport/socket/socket_mesh.h"

namespace backends {

class MeshSetup {
 public:
  MeshSetup(const BackendContext& context, SocketMesh& mesh);
  // Throws as SocketMesh's constructor does.
  void run();

 private:
  enum class Stage {
    kRelayConnecting,
    kRelayChallenge,
    kRelayWaiting,  // for the other end
    kConnecting,
    kHello,
    kChallenge,
    kProof,
    kWelcome,
    kEstablishing,
    kDone,
    kFailed
  };
  // A connection to be established.
  struct Target {
    int peer, stream;
    bool connects;          // this rank has the higher number
    Endpoint to;            // where the peer listens, if `connects`
    Deadline relay_from{};  // when the relay is used, if there is one
    Deadline next_direct{}, next_relayed{};
    bool has_direct = false, has_relayed = false;  // attempts that are under way
    bool done = false;
    int wrong_challenges = 0;
    int error = 0;  // errno of the last direct connect()
  };
  // A connection that is not established yet.
  struct Attempt {
    Socket socket;
    bool outgoing = false;  // this rank sends the hello
    bool relayed = false;
    Target* target = nullptr;  // nullptr: one that was accepted
    Stage stage = Stage::kHello;
    RelayHello relay_hello;
    RelayChallenge relay_challenge;
    MeshHello hello;
    MeshChallenge challenge;
    std::string in;  // received part of the next message
    Deadline until{};
  };
  void publish();
  void look_up_peers();
  // Starts what is due towards a peer: a direct connection and, after a while, one to the relay.
  void connect(Target& target);
  void connect_directly(Target& target);
  void connect_to_relay(Target& target);
  void wait();
  void accept_all();
  void serve(Attempt& attempt);
  [[nodiscard]] bool receive(Attempt& attempt, std::size_t bytes);
  void on_relay_connected(Attempt& attempt);
  void on_relay_challenge(Attempt& attempt);
  void on_joined(Attempt& attempt);
  void on_connected(Attempt& attempt);
  void send_hello(Attempt& attempt);
  void on_hello(Attempt& attempt);
  void on_challenge(Attempt& attempt);
  void on_proof(Attempt& attempt);
  void on_welcome(Attempt& attempt);
  void on_wrong_challenge(Attempt& attempt);
  void require_equal_streams(int theirs, int peer) const;
  void require_equal_cipher(LinkCipher theirs, int peer) const;
  void keep(Attempt& attempt, int peer, std::uint32_t machine);
  void cancel_others(const Target& target);
  void sweep();
  void report_links();
  std::string timeout_hint() const;
  [[noreturn]] void throw_timeout();

  const BackendContext& context_;
  SocketMesh& mesh_;
  const Deadline deadline_;
  Socket listener_;
  std::deque<Attempt> attempts_;
  std::vector<Target> targets_;  // complete before the first attempt
  std::set<int> relayed_;        // peers with a connection through the relay
  int relay_failures_ = 0;       // answers of the relay that prove nothing, one after the other
  int missing_ = 0;
};

}  // namespace backends
