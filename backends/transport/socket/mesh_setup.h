// Builds a SocketMesh: one loop connects, accepts and authenticates until every connection is
// established.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

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
    kConnecting,
    kHello,
    kChallenge,
    kProof,
    kWelcome,
    kEstablishing,
    kDone,
    kFailed
  };
  // A connection that is not established yet.
  struct Attempt {
    Socket socket;
    bool outgoing = false;
    Stage stage = Stage::kHello;
    MeshHello hello;
    MeshChallenge challenge;
    std::string in;  // received part of the next message
    Deadline until{};
  };
  // A connection that this rank has to open.
  struct Target {
    int peer, stream;
    Endpoint to;
    Deadline next{};
    bool connecting = false;
    int wrong_challenges = 0;
  };

  void publish();
  void look_up_peers();
  void start_due_connects();
  void start(Target& target);
  void wait();
  void accept_all();
  void serve(Attempt& attempt);
  [[nodiscard]] bool receive(Attempt& attempt, std::size_t bytes);
  void on_connected(Attempt& attempt);
  void on_hello(Attempt& attempt);
  void on_challenge(Attempt& attempt);
  void on_proof(Attempt& attempt);
  void on_welcome(Attempt& attempt);
  Target& target_of(const Attempt& attempt);
  void require_equal_streams(int theirs, int peer) const;
  void require_equal_cipher(LinkCipher theirs, int peer) const;
  void keep(Attempt& attempt, int peer, std::uint32_t machine);
  void sweep();
  [[noreturn]] void throw_timeout();

  const BackendContext& context_;
  SocketMesh& mesh_;
  const Deadline deadline_;
  Socket listener_;
  std::deque<Attempt> attempts_;
  std::vector<Target> targets_;
  int missing_ = 0;
};

}  // namespace backends
