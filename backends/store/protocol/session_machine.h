// The client's half of the handshake as a state machine: from a new connection to the store's
// server until it accepts or rejects this rank. It has no clock and no socket, like
// server_machine.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "backends/store/protocol/handshake.h"
#include "backends/store/protocol/seal.h"

namespace backends {

class SessionMachine {
 public:
  // `nonce`: random, kNonceBytes long. `peer`: the server's address, for messages.
  SessionMachine(const Secret& secret, Hello hello, const std::string& nonce, std::string peer);

  void received(std::string_view bytes);
  std::string take_output() { return std::exchange(output_, {}); }

  enum class State {
    kRunning,
    kWelcome,      // a member: a MemberMachine continues with parser() and seals()
    kNoStore,      // the process that listens there is not a store
    kOtherSecret,  // a store with another secret; it has our proof, and may report us
    kRefused       // see refusal()
  };
  State state() const { return state_; }
  // For kWelcome: the frames that the server has received on earlier connections of the session.
  std::uint64_t peer_received() const { return peer_received_; }
  // Returns true if the server has proved that it has the secret.
  bool is_proved() const { return stage_ == Stage::kAnswer; }
  // For kRefused. Its text is untrusted until is_proved().
  const std::pair<RefusalKind, std::string>& refusal() const { return *refusal_; }

  FrameParser& parser() { return parser_; }  // may hold frames that came after the welcome
  Seals& seals() { return seals_; }

 private:
  enum class Stage { kChallenge, kAnswer };

  void handle(const Frame& frame);
  void on_challenge(const Frame& frame);
  void on_answer(const Frame& frame);

  const Secret& secret_;
  const Hello hello_;
  const std::string peer_;
  Stage stage_ = Stage::kChallenge;
  State state_ = State::kRunning;
  FrameParser parser_;
  Seals seals_;
  std::string hello_payload_, output_;
  std::uint64_t peer_received_ = 0;
  std::optional<std::pair<RefusalKind, std::string>> refusal_;
};

}  // namespace backends
