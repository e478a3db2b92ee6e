// Encrypts the frames of a store connection after the handshake.
//
// The payload is encrypted, and its tag also covers the frame's type; the nonce is the frame's
// number on this connection. The key is derived from the job's secret and the transcript of the
// handshake (the hello and both nonces), one for each direction. So a relay that changes, repeats,
// omits, reorders or reflects a frame is detected, and frames of other connections are invalid.
// There is no connection without encryption, so no peer can ask for one: the cost is that of the
// MAC which a frame needs anyway.
#pragma once

#include <cstdint>
#include <string>

#include "backends/secret.h"
#include "backends/secure/record_cipher.h"
#include "backends/store/protocol/wire.h"

namespace backends {

inline constexpr std::size_t kSealBytes = kTextTagBytes;

// One direction of a connection. Without a key, frames pass unsealed.
class Seal {
 public:
  Seal() = default;
  explicit Seal(Secret key) : key_(std::move(key)) {}

  // Encrypts the next frame, as FrameWriter::finish() returned it.
  std::string close(const std::string& frame);
  // Verifies and decrypts the next frame. Throws MalformedFrame.
  void open(Frame& frame);

 private:
  Secret key_;
  std::uint64_t number_ = 0;
};

// Both directions of a connection, for either end.
struct Seals {
  Seal to_server, to_client;
};
Seals make_seals(const Secret& secret, const std::string& hello_payload,
                 const std::string& server_nonce);

}  // namespace backends
