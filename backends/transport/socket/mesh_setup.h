// Builds a SocketMesh: one loop connects, accepts and authenticates until every connection is
// established. Afterwards the same steps restore broken connections (mesh_repair.cc).
//
// The rank with the higher number connects to the other. With a relay, both ends of a connection
// that is not established after kDirectTime also connect to the relay; the higher rank then takes
// what comes first. Only it decides: the lower rank counts a connection when the last byte of the
// handshake has come, which the higher one sends on one connection.
#pragma once

#include <poll.h>

#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/relay/relay_message.h"
#include "backends/store/connection_acceptor.h"
#include "backends/transport/socket/mesh_proof.h"
#include "backends/transport/socket/socket_mesh.h"

namespace backends {

// Per direct connection, from the connect or the accept to the last byte of the handshake.
inline constexpr auto kLinkHandshakeTimeout = std::chrono::seconds(2);

// Bytes of a link that are kept to be sent again: more than is held on the way.
std::size_t replay_bytes(bool may_be_relayed);

class MeshSetup {
 public:
  MeshSetup(const BackendContext& context, SocketMesh& mesh);
  // Throws as SocketMesh's constructor does.
  void run();
  // After run(), in a thread of its own until `stop` or the end of the mesh: restores
  // broken connections for which that succeeds within the patience.
  void repair(const std::stop_token& stop);

 private:
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
  // The state of a connection that has broken.
  struct Repair {
    bool broken = false, reported = false;
    int half_closed = 0;  // looks that found its other end closed, with data left to be read
    Deadline since{}, report{}, until{};
  };
  // A connection to be established, and restored when it breaks.
  struct Target {
    int peer = 0, stream = 0;
    bool connects = false;    // this rank has the higher number
    Endpoint to{};            // where the peer listens; port 0: not known, or not reachable
    bool relayed = false;     // the newest connection goes through the relay
    std::uint32_t epoch = 0;  // number of the next connection, if `connects`
    Deadline relay_from{};    // when the relay is used, if there is one
    Deadline next_direct{}, next_relayed{};
    bool has_direct = false, has_relayed = false;  // attempts that are under way
    int wrong_challenges = 0, wrong_relayed_challenges = 0;
    int error = 0;  // errno of the last direct connect()
    Repair repair{};
  };
  // A connection that is not established yet, or a probe.
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
    std::uint64_t peer_received = 0;
    bool is_proved = false;  // an accepted one is its hello's peer
    Deadline until{};
  };
  void publish();
  void look_up_peers();
  // Starts what is due towards a peer: a direct connection and, after a while, one to the relay.
  // The side that is connected to opens a direct one after a break, only as a probe: a refusal
  // means that the peer's process has ended.
  void connect(Target& target);
  void connect_directly(Target& target);
  void connect_to_relay(Target& target);
  void note_connect(Target& target, int error);
  void wait();
  std::vector<pollfd> polled_attempts() const;
  void serve_ready(const std::vector<pollfd>& polled);
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
  void sweep();
  void report_links();
  std::string timeout_hint() const;
  std::string missing_ranks() const;
  [[noreturn]] void throw_timeout();

  // Parts of repair() (mesh_repair.cc).
  [[nodiscard]] bool may_replace(const MeshHello& hello) const;
  void prepare_link(const Attempt& attempt);
  [[nodiscard]] bool resume(Attempt& attempt, Target& target, const LinkKeys& keys);
  void check_links();
  void look_at(MeshLink& link, Repair& repair);
  void begin_repair(Target& target);
  void continue_repair(Target& target);
  void report_break(Target& target);
  std::string missing_text(const Target& target) const;
  void wait_for_repairs();
  void serve_or_give_up(Attempt& attempt);
  bool has_broken() const;

  Target& target_of(int peer, int stream) { return targets_[mesh_.index(peer, stream)]; }
  const std::unique_ptr<MeshLink>& link_of(const Target& target) const {
    return mesh_.links_[mesh_.index(target.peer, target.stream)];
  }
  bool needs_connection(const Target& target) const;
  Deadline relay_start(const Target& target) const;
  // After a break, continue_repair() ends what is left.
  Deadline last_time() const { return repairing_ ? Deadline::max() : deadline_; }
  std::uint64_t received_from(int peer, int stream) const;
  bool accepts() const { return context_.rank + 1 < context_.world_size; }
  std::string name_of(int peer) const {
    return "rank " + std::to_string(context_.group_rank(peer));
  }

  const BackendContext context_;
  SocketMesh& mesh_;
  const Deadline deadline_;
  Socket listener_;
  std::deque<Attempt> attempts_;
  std::vector<Target> targets_;  // [peer][stream]; those of this rank need no connection
  std::set<int> relayed_;        // peers with a connection through the relay
  int relay_failures_ = 0;       // answers of the relay that prove nothing, one after the other
  std::optional<Deadline> relay_until_;  // for an answer of the relay, while none has come
  int missing_ = 0;
  bool repairing_ = false;
  Deadline next_look_{};
  ConnectionAcceptor acceptor_;
};

}  // namespace backends
