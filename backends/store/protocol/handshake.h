// Authenticates both sides at the start of every connection to the store.
//
//   client -> server  Hello: magic, version, client nonce, rank, world size, job, build, host
//
//   server -> client  Challenge: server nonce, MAC(secret, "engine store server", hello | nonce)
//
//   client -> server  Proof: MAC(secret, "engine store client", hello | server nonce)
//
//   server -> client  Welcome, or Refuse with the reason; if the settings differ, AskSettings comes
//                     first, which the client answers with Settings, so that the reason names them
//
// All frames after the reply to a valid proof are sealed (seal.h).
//
// MAC is HMAC-SHA-256. The labels prevent reflection of a proof to its sender, the nonces prevent
// replay of old proofs. Fields are compared only after the proof, so an unauthenticated client
// learns nothing about the job.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "backends/secret.h"
#include "backends/store/protocol/settings.h"
#include "backends/store/protocol/wire.h"

namespace backends {

// The limit from the connection to its Welcome, on both sides.
inline constexpr auto kHandshakeTimeout = std::chrono::seconds(5);

struct Hello {
  std::uint32_t magic = kProtocolMagic;
  std::uint32_t version = kProtocolVersion;
  std::string nonce;  // for this connection
  int rank = 0, world_size = 1, pid = 0;
  // The port that the client connected to, if it searches a window of ports. A server that listens
  // on another port was reached through a relay, which took the client's port first. 0: any.
  int port = 0;
  // Identifies the joining process on all its connections, so that it may reconnect. Not secret:
  // the sender still has to answer a new challenge. "": unknown, and never equal to another
  // process.
  std::string process;
  // Counts the connections of the process, which uses only the latest.
  std::uint32_t attempt = 0;
  // The number of frames received in the session of an earlier connection, which this one
  // continues. Without it the process starts a new session.
  std::optional<std::uint64_t> received;
  std::string job, build, settings_digest, host, host_id;
  Settings settings;  // not in the hello's frame: sent on request
};

// The rank in the Hello of an observer, which is not a member but receives the status that the job
// publishes. It needs the secret; its job id, world size, build and settings are not compared.
inline constexpr int kObserverRank = -1;

// The limit of each text in a Hello, so that it fits an unauthenticated frame.
inline constexpr std::size_t kIdentityTextBytes = 128;

// Returns true if both come from one known process.
bool is_same_process(const Hello& a, const Hello& b);
std::string hello_frame(const Hello& hello);
// Reads the fields after `version` only if magic and version are this program's.
Hello read_hello(const std::string& payload);

// `received`: frames of the session that this connection continues.
std::string welcome_frame(std::uint64_t received);

std::string server_proof(const Secret& secret, const std::string& hello_payload,
                         const std::string& server_nonce);
std::string client_proof(const Secret& secret, const std::string& hello_payload,
                         const std::string& server_nonce);

std::string refusal_frame(FrameType type, RefusalKind kind, const std::string& text);
// Throws the exception of that kind.
[[noreturn]] void throw_refusal(RefusalKind kind, const std::string& text);

// Ends a message about a client whose proof is not as expected.
inline constexpr std::string_view kUnprovedText =
    " has not proved that it has the secret of this job: it has another one, or bytes were changed "
    "or repeated on the way";

std::string member_text(int rank, const std::string& host, int pid);  // "rank 1 (host n7, pid 42)"

}  // namespace backends
