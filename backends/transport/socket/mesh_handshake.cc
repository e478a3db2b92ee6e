// Implements the handshake of a connection of the mesh, message by message.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backends/backend_error.h"
#include "backends/relay/relay_route.h"
#include "backends/transport/repair/link_patience.h"
#include "backends/transport/socket/mesh_connector.h"
#include "io/base/files/transient_error.h"

namespace backends {
namespace {

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Between two ranks that the relay has joined.
constexpr auto kRelayedLinkTime = std::chrono::seconds(5);

}  // namespace

bool MeshConnector::receive(MeshAttempt& attempt, std::size_t bytes) {
  char buffer[256];
  const ssize_t n = recv(attempt.socket.fd(), buffer, bytes - attempt.in.size(), MSG_DONTWAIT);
  if (n > 0) {
    attempt.in.append(buffer, static_cast<std::size_t>(n));
  } else if (n == 0 || !base::is_transient(errno)) {
    attempt.stage = Stage::kFailed;
  }
  return attempt.in.size() == bytes;
}

void MeshConnector::serve(MeshAttempt& attempt) {
  switch (attempt.stage) {
    case Stage::kRelayConnecting:
      return on_relay_connected(attempt);
    case Stage::kRelayChallenge:
      if (receive(attempt, sizeof(RelayChallenge))) on_relay_challenge(attempt);
      return;
    case Stage::kRelayWaiting:
      if (receive(attempt, 1)) on_joined(attempt);
      return;
    case Stage::kConnecting:
      return on_connected(attempt);
    case Stage::kHello:
      if (receive(attempt, sizeof(MeshHello))) on_hello(attempt);
      return;
    case Stage::kChallenge:
      if (receive(attempt, sizeof(MeshChallenge))) on_challenge(attempt);
      return;
    case Stage::kProof:
      if (receive(attempt, kMacBytes)) on_proof(attempt);
      return;
    case Stage::kWelcome:
      if (receive(attempt, sizeof(MeshWelcome))) on_welcome(attempt);
      return;
    case Stage::kEstablishing:
      if (receive(attempt, 1)) finish(attempt, attempt.hello.from, attempt.hello.machine);
      return;
    case Stage::kDone:
    case Stage::kFailed:
      return;
  }
}

// ---- With the relay, until it has joined both ends.

void MeshConnector::on_relay_connected(MeshAttempt& attempt) {
  const bool sent = take_connect_error(attempt.socket.fd()) == 0 &&
                    send_at_once(attempt.socket.fd(), bytes_of(attempt.relay_hello));
  attempt.stage = sent ? Stage::kRelayChallenge : Stage::kFailed;
}

void MeshConnector::on_relay_challenge(MeshAttempt& attempt) {
  std::memcpy(&attempt.relay_challenge, attempt.in.data(), sizeof attempt.relay_challenge);
  attempt.in.clear();
  const Secret& secret = context_.relay->secret();
  if (!proves_relay(secret, attempt.relay_hello, attempt.relay_challenge)) {
    attempt.stage = Stage::kFailed;
    if (++relay_failures_ < kMaxWrongSecrets) return;
    throw AuthenticationError("the process at " + peer_text(attempt.socket.fd()) +
                              ", expected to be the relay, does not know this job's secret (from " +
                              secret.origin + ")");
  }
  relay_failures_ = 0;
  relay_until_.reset();
  const bool sent = send_at_once(
      attempt.socket.fd(), relay_rank_proof(secret, attempt.relay_hello, attempt.relay_challenge));
  attempt.stage = sent ? Stage::kRelayWaiting : Stage::kFailed;
  attempt.until = client_->relay_limit();
  if (resumes(context_)) notice_silence(attempt.socket.fd(), context_.link_patience);
}

void MeshConnector::on_joined(MeshAttempt& attempt) {
  const bool joined = attempt.in.front() == kRelayJoined;
  attempt.in.clear();
  attempt.until = context_.clock.deadline_in(kRelayedLinkTime);
  attempt.stage = joined ? Stage::kHello : Stage::kFailed;
  if (joined && attempt.outgoing) send_hello(attempt);
}

// ---- With the peer.

void MeshConnector::on_connected(MeshAttempt& attempt) {
  MeshTarget& target = *attempt.target;
  target.error = take_connect_error(attempt.socket.fd());
  client_->on_connect(target);
  if (target.error == 0 && attempt.outgoing) return send_hello(attempt);
  attempt.stage = Stage::kFailed;  // or a probe, which has found what it sought
}

void MeshConnector::send_hello(MeshAttempt& attempt) {
  MeshTarget& target = *attempt.target;
  attempt.hello = make_hello(context_.rank, target.peer, target.stream, context_.streams,
                             target.to.port, context_.cipher);
  if (resumes(context_)) {
    const Endpoint own = local_endpoint(listener_.fd());
    attempt.hello.listens = own.port;
    attempt.hello.address = address_digest(own.host);
  }
  attempt.hello.epoch = target.machine.numbers().offer();
  attempt.hello.received = client_->received(target.peer, target.stream);
  const bool sent = send_at_once(attempt.socket.fd(), bytes_of(attempt.hello));
  attempt.stage = sent ? Stage::kChallenge : Stage::kFailed;
}

void MeshConnector::on_hello(MeshAttempt& attempt) {
  MeshHello& hello = attempt.hello;
  std::memcpy(&hello, attempt.in.data(), sizeof hello);
  attempt.in.clear();
  attempt.stage = Stage::kFailed;
  if (hello.magic != kMeshMagic || hello.version != kMeshVersion || hello.to != context_.rank ||
      hello.from <= context_.rank || hello.from >= context_.world_size ||
      hello.port != local_endpoint(listener_.fd()).port ||
      (attempt.target != nullptr && hello.from != attempt.target->peer) ||
      !client_->may_take(hello))
    return;
  attempt.challenge = make_challenge(context_.secret, context_.prefix, hello);
  if (send_at_once(attempt.socket.fd(), bytes_of(attempt.challenge))) attempt.stage = Stage::kProof;
}

void MeshConnector::on_challenge(MeshAttempt& attempt) {
  std::memcpy(&attempt.challenge, attempt.in.data(), sizeof attempt.challenge);
  attempt.in.clear();
  if (!proves_acceptor(context_.secret, context_.prefix, attempt.hello, attempt.challenge)) {
    attempt.stage = Stage::kFailed;
    return on_wrong_challenge(attempt);
  }
  const std::string proof =
      connector_proof(context_.secret, context_.prefix, attempt.hello, attempt.challenge);
  attempt.stage = send_at_once(attempt.socket.fd(), proof) ? Stage::kWelcome : Stage::kFailed;
}

void MeshConnector::on_wrong_challenge(MeshAttempt& attempt) {
  if (!attempt.target->machine.on_wrong_secret(attempt.way)) return;
  throw AuthenticationError(
      "the process at " + peer_text(attempt.socket.fd()) + ", expected to be rank " +
      std::to_string(context_.group_rank(attempt.hello.to)) + " does not know this job's secret");
}

void MeshConnector::on_proof(MeshAttempt& attempt) {
  const std::string expected =
      connector_proof(context_.secret, context_.prefix, attempt.hello, attempt.challenge);
  const bool proven = equal_in_constant_time(attempt.in, expected);
  attempt.peer_received = attempt.hello.received;
  attempt.in.clear();
  attempt.stage = Stage::kFailed;
  if (!proven || !client_->may_take(attempt.hello)) return;
  attempt.is_proved = true;
  client_->on_proof(attempt.hello);
  MeshWelcome welcome{context_.streams,
                      client_->is_oversubscribed() ? 1 : 0,
                      machine_digest(),
                      context_.cipher,
                      client_->received(attempt.hello.from, attempt.hello.stream),
                      {}};
  std::ranges::copy(
      welcome_proof(context_.secret, context_.prefix, attempt.hello, attempt.challenge, welcome),
      welcome.mac);
  const bool welcomed = send_at_once(attempt.socket.fd(), bytes_of(welcome));
  require_equal_streams(attempt.hello.streams, attempt.hello.from);
  require_equal_cipher(attempt.hello.cipher, attempt.hello.from);
  if (welcomed && attempt.hello.stream >= 0 && attempt.hello.stream < context_.streams)
    attempt.stage = Stage::kEstablishing;
}

void MeshConnector::on_welcome(MeshAttempt& attempt) {
  MeshWelcome welcome;
  std::memcpy(&welcome, attempt.in.data(), sizeof welcome);
  attempt.stage = Stage::kFailed;
  if (!equal_in_constant_time({welcome.mac, kMacBytes},
                              welcome_proof(context_.secret, context_.prefix, attempt.hello,
                                            attempt.challenge, welcome)))
    return;
  require_equal_streams(welcome.streams, attempt.hello.to);
  require_equal_cipher(welcome.cipher, attempt.hello.to);
  ConnectionNumbers& numbers = attempt.target->machine.numbers();
  if (!numbers.is_current(attempt.hello.epoch)) return;  // another attempt was quicker
  if (!send_at_once(attempt.socket.fd(), {"\0", 1})) return;
  numbers.on_chosen();
  attempt.peer_oversubscribed = welcome.oversubscribed != 0;
  attempt.peer_received = welcome.received;
  finish(attempt, attempt.hello.to, welcome.machine);
}

void MeshConnector::require_equal_streams(int theirs, int peer) const {
  if (theirs == context_.streams) return;
  throw MismatchError("rank " + std::to_string(context_.group_rank(context_.rank)) + " uses " +
                      std::to_string(context_.streams) + " connections per peer, rank " +
                      std::to_string(context_.group_rank(peer)) + " " + std::to_string(theirs));
}

void MeshConnector::require_equal_cipher(LinkCipher theirs, int peer) const {
  if (theirs == context_.cipher) return;
  throw MismatchError("rank " + std::to_string(context_.group_rank(context_.rank)) +
                      " encrypts its connections with " + to_string(context_.cipher) + ", rank " +
                      std::to_string(context_.group_rank(peer)) + " with " + to_string(theirs) +
                      ": give all ranks the same --encrypt");
}

}  // namespace backends
