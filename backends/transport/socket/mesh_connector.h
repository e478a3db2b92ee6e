// Makes the authenticated connections of a mesh: connects to some ranks, accepts the others, and
// carries out the handshake of each. MeshSetup and then MeshRepair use it, one after the other.
//
// The rank with the higher number connects to the other. With a relay, both ends of a connection
// that is not established after kDirectTime also connect to the relay; the higher rank then takes
// what comes first. Only it decides: the lower rank counts a connection when the last byte of the
// handshake has come, which the higher one sends on one connection.
#pragma once

#include <poll.h>

#include <chrono>
#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/relay/relay_message.h"
#include "backends/store/connection_acceptor.h"
#include "backends/store/tcp_socket.h"
#include "backends/transport/repair/link_machine.h"
#include "backends/transport/socket/mesh_proof.h"

namespace backends {

// Per direct connection, from the connect or the accept to the last byte of the handshake.
inline constexpr auto kLinkHandshakeTimeout = std::chrono::seconds(2);

// A connection to be established, and restored when it breaks.
struct MeshTarget {
  int peer = 0, stream = 0;
  bool connects = false;  // this rank has the higher number
  Endpoint to{};          // where the peer listens; port 0: not known, or not reachable
  int error = 0;          // errno of the last direct connect()
  LinkMachine machine{};
};

// A connection that is not established yet, or a probe.
struct MeshAttempt {
  enum class Stage {
    kRelayConnecting,
    kRelayChallenge,
    kRelayWaiting,  // for the other end
    kConnecting,    // the last one of a probe
    kHello,
    kChallenge,
    kProof,
    kWelcome,
    kEstablishing,
    kDone,
    kFailed
  };
  Socket socket;
  bool outgoing = false;  // this rank sends the hello
  ConnectWay way = ConnectWay::kDirect;
  MeshTarget* target = nullptr;  // nullptr: one that was accepted
  Stage stage = Stage::kHello;
  RelayHello relay_hello;
  RelayChallenge relay_challenge;
  MeshHello hello;
  MeshChallenge challenge;
  std::string in;  // received part of the next message
  std::uint64_t peer_received = 0;
  bool is_proved = false;            // an accepted one is its hello's peer
  bool peer_oversubscribed = false;  // as of its welcome
  Deadline until{};

  bool is_relayed() const { return way == ConnectWay::kRelay; }
  bool is_over() const { return stage == Stage::kDone || stage == Stage::kFailed; }
};

// Returns true if the peers run on this host, so that packets show their cores.
bool is_on_loopback(const BackendContext& context);
// Returns true if broken connections are restored.
inline bool resumes(const BackendContext& context) { return context.link_patience.count() > 0; }
// Returns true if a pair goes to the relay without trying directly first.
bool starts_at_relay(const BackendContext& context, int peer);

class MeshConnector {
 public:
  // The decisions in which set-up and repair differ.
  class Client {
   public:
    virtual ~Client() = default;
    // Returns the time limit of a direct attempt, and of a wait for the other end at the relay.
    virtual Deadline direct_limit() const = 0;
    virtual Deadline relay_limit() const = 0;
    // A direct connect() has ended with target.error.
    virtual void on_connect(MeshTarget& target) = 0;
    // Returns true if a connection with this hello may be taken.
    virtual bool may_take(const MeshHello& hello) = 0;
    // The peer has proved that the connection is its own.
    virtual void on_proof(const MeshHello& hello) = 0;
    // Returns the number of bytes that this rank has received on a link. REQUIRES: after repairs
    // have begun, it is one of may_take().
    virtual std::uint64_t received(int peer, int stream) const = 0;
    // The handshake is over. Returns true if the link goes over this connection now.
    virtual bool use(MeshAttempt& attempt, MeshTarget& target, const LinkKeys& keys) = 0;
    // Returns true if the error ends only the attempt, else it is rethrown.
    virtual bool handles(const MeshAttempt& attempt, const std::exception& error) = 0;
    // Returns true if rank 0 has found more ranks than cores on this host.
    virtual bool is_oversubscribed() const = 0;
    virtual void on_no_files() = 0;  // for connections that wait to be accepted
  };

  explicit MeshConnector(const BackendContext& context) : context_(context) {}
  const BackendContext& context() const { return context_; }
  // REQUIRES: called before all below.
  void set_client(Client& client) { client_ = &client; }

  void listen();
  int listener() const { return listener_.fd(); }
  // Begins to connect. `listeners[peer]`: where lower ranks listen.
  void start(const std::vector<Endpoint>& listeners);
  std::vector<MeshTarget>& targets() { return targets_; }
  MeshTarget& target_of(int peer, int stream);
  // Returns the place of a target, or of its link, among all.
  std::size_t index_of(const MeshTarget& target) const {
    return static_cast<std::size_t>(&target - targets_.data());
  }

  // Starts what is due towards the peers.
  void connect();
  // Returns the descriptors for poll(): the listener, and the attempts in their order.
  std::vector<pollfd> polled() const;
  void serve(const std::vector<pollfd>& polled);
  // Removes attempts that are done, failed, too late or no longer needed.
  void sweep();
  void close();

  // Returns an attempt at this stage, for `target` unless that is nullptr; nullptr: none.
  const MeshAttempt* attempt_at(MeshAttempt::Stage stage, const MeshTarget* target = nullptr) const;
  // Set while no answer of the relay has come.
  std::optional<Deadline> relay_until() const { return relay_until_; }

 private:
  using Stage = MeshAttempt::Stage;
  void connect_to(MeshTarget& target);
  void connect_directly(MeshTarget& target, ConnectWay way);
  void connect_to_relay(MeshTarget& target);
  void accept_all();
  void serve(MeshAttempt& attempt);
  [[nodiscard]] bool receive(MeshAttempt& attempt, std::size_t bytes);
  void on_relay_connected(MeshAttempt& attempt);
  void on_relay_challenge(MeshAttempt& attempt);
  void on_joined(MeshAttempt& attempt);
  void on_connected(MeshAttempt& attempt);
  void send_hello(MeshAttempt& attempt);
  void on_hello(MeshAttempt& attempt);
  void on_challenge(MeshAttempt& attempt);
  void on_wrong_challenge(MeshAttempt& attempt);
  void on_proof(MeshAttempt& attempt);
  void on_welcome(MeshAttempt& attempt);
  void require_equal_streams(int theirs, int peer) const;
  void require_equal_cipher(LinkCipher theirs, int peer) const;
  void finish(MeshAttempt& attempt, int peer, std::uint32_t machine);

  const BackendContext context_;
  Client* client_ = nullptr;
  Socket listener_;
  std::deque<MeshAttempt> attempts_;
  std::vector<MeshTarget> targets_;  // [peer][stream]; those of this rank need no connection
  int relay_failures_ = 0;           // answers of the relay that prove nothing, one after the other
  std::optional<Deadline> relay_until_;
  ConnectionAcceptor acceptor_;
};

}  // namespace backends
