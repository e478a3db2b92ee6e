// Authenticates both sides at the start of every connection between two ranks.
//
//   connector -> acceptor   MeshHello: both ranks, the number of the connection, ports,
//                           the machine, the cipher, a nonce
//
//   acceptor -> connector   MeshChallenge: nonce, MAC(secret, "engine socket acceptor", transcript)
//
//   connector -> acceptor   MAC(secret, "engine socket connector", transcript)
//
//   acceptor -> connector   MeshWelcome (with its own cipher), MAC(secret, "engine socket welcome",
//   transcript, welcome)
//
//   connector -> acceptor   one byte of any value: the connection is established
//
// A connection that replaces a broken one has an epoch above all earlier ones of its link, equal
// for all attempts to make it. Both sides state how many bytes they have received: the connector in
// its hello, the acceptor in its welcome.
//
// A changed byte costs the connection but never the set-up: the connector connects again, and the
// acceptor waits for the byte before it counts the connection. The transcript is the communicator's
// name, the hello and the acceptor's nonce. Each side proves that it knows the job's secret without
// sending it. Both nonces are in the MACs, so a recorded proof cannot be replayed; the labels
// differ, so a proof cannot be reflected to its sender (store/protocol/handshake.h does the same
// for the store).
//
// The ciphers of both sides are under the MACs, and a connection with different ones is not used,
// so no process on the path can choose. The keys are MACs of the same transcript, one per
// direction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backends/secret.h"
#include "backends/secure/record_stream.h"

namespace backends {

inline constexpr std::uint32_t kMeshMagic = 0x45534f43, kMeshVersion = 6;

struct MeshHello {
  std::uint32_t magic = kMeshMagic, version = kMeshVersion;
  std::int32_t from = 0, to = 0;  // ranks in the communicator
  std::int32_t stream = 0, streams = 1;
  std::int32_t port = 0;      // that the connector used: the acceptor's own, unless relayed
  std::uint32_t machine = 0;  // the connector's: digest of machine_id()
  LinkCipher cipher = LinkCipher::kNone;
  std::int32_t listens = 0;    // the port at which the connector listens; 0: it does not
  std::uint32_t address = 0;   // digest of the address at which it does
  std::uint32_t epoch = 0;     // number of the connection, for this link
  std::uint64_t received = 0;  // bytes of the stream that the connector has
  char nonce[kNonceBytes] = {};
};
static_assert(sizeof(MeshHello) == 56 + kNonceBytes);

struct MeshChallenge {
  char nonce[kNonceBytes] = {}, mac[kMacBytes] = {};
};

struct MeshWelcome {
  // The acceptor's; oversubscribed: 1 for more ranks than cores.
  std::int32_t streams = 0, oversubscribed = 0;
  std::uint32_t machine = 0;
  LinkCipher cipher = LinkCipher::kNone;
  std::uint64_t received = 0;  // bytes of the stream that the acceptor has
  char mac[kMacBytes] = {};
};
static_assert(sizeof(MeshWelcome) == 24 + kMacBytes);

std::uint32_t machine_digest();
std::uint32_t address_digest(const std::string& host);
MeshHello make_hello(int from, int to, int stream, int streams, int port,
                     LinkCipher cipher = LinkCipher::kNone);
MeshChallenge make_challenge(const Secret& secret, std::string_view name, const MeshHello& hello);
[[nodiscard]] bool proves_acceptor(const Secret& secret, std::string_view name,
                                   const MeshHello& hello, const MeshChallenge& challenge);
// Returns kMacBytes.
std::string connector_proof(const Secret& secret, std::string_view name, const MeshHello& hello,
                            const MeshChallenge& challenge);
// Returns the MAC of `welcome`, whose own MAC is ignored: kMacBytes.
std::string welcome_proof(const Secret& secret, std::string_view name, const MeshHello& hello,
                          const MeshChallenge& challenge, MeshWelcome welcome);

// Keys of an established connection, with hello.cipher, for either end.
LinkKeys connector_keys(const Secret& secret, std::string_view name, const MeshHello& hello,
                        const MeshChallenge& challenge);
LinkKeys acceptor_keys(const Secret& secret, std::string_view name, const MeshHello& hello,
                       const MeshChallenge& challenge);

}  // namespace backends
