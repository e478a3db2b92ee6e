// The handshake with a relay, and how both ends of a pair name themselves to it.
//
//   rank -> relay   RelayHello: which end of which pair, a nonce
//
//   relay -> rank   RelayChallenge: nonce, MAC(job's secret, "engine relay", hello | nonce)
//
//   rank -> relay   MAC(job's secret, "engine relay rank", hello | nonce)
//
//   relay -> rank   kRelayJoined, when the other end has proved itself as well
//
// The relay then copies bytes both ways, and the two ranks begin with the handshake of a direct
// connection (transport/socket/mesh_proof.h), under the group's secret and with its encryption.
// Both nonces are in the MACs, so a recorded proof cannot be replayed; the labels differ, so a
// proof cannot be reflected to its sender.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "backends/secret.h"
#include "backends/store/tcp_socket.h"

namespace backends {

inline constexpr std::uint32_t kRelayMagic = 0x45524c59, kRelayVersion = 1;
inline constexpr char kRelayJoined = 1;
inline constexpr std::size_t kRelayJobBytes = 64;
// From the connection to the proof.
inline constexpr auto kRelayHandshakeTimeout = std::chrono::seconds(5);

enum class RelayEnd : std::uint32_t { kAcceptor = 0, kConnector = 1 };

struct RelayHello {
  std::uint32_t magic = kRelayMagic, version = kRelayVersion;
  RelayEnd end = RelayEnd::kAcceptor;
  std::int32_t from = 0, to = 0;  // ranks of the job, for reports
  char pair[kMacBytes] = {};      // equal on both ends of a connection, and on no other
  char job[kRelayJobBytes] = {};  // the job's id, for reports; padded with zeros
  char nonce[kNonceBytes] = {};
};
static_assert(sizeof(RelayHello) == 20 + kMacBytes + kRelayJobBytes + kNonceBytes);

struct RelayChallenge {
  char nonce[kNonceBytes] = {}, mac[kMacBytes] = {};
};

// A connection between two ranks of a group, for its secret's `pair`.
struct RelayedLink {
  std::string_view name;  // the communicator's
  int lower = 0, higher = 0, stream = 0;
};
// Returns kMacBytes.
std::string relay_pair(const Secret& group_secret, const RelayedLink& link);

// Sets the nonce. `pair`: of relay_pair().
RelayHello make_relay_hello(RelayEnd end, int from, int to, const std::string& pair,
                            std::string_view job);
RelayChallenge make_relay_challenge(const Secret& secret, const RelayHello& hello);
[[nodiscard]] bool proves_relay(const Secret& secret, const RelayHello& hello,
                                const RelayChallenge& challenge);
// Returns kMacBytes.
std::string relay_rank_proof(const Secret& secret, const RelayHello& hello,
                             const RelayChallenge& challenge);
// Probes an idle connection often enough for a router on the way to keep it.
inline constexpr KeepAlive kRelayKeepAlive{
    .idle_seconds = 15, .interval_seconds = 10, .max_unanswered = 4};

// Returns the job's id, fit to be shown.
std::string job_of(const RelayHello& hello);

}  // namespace backends
