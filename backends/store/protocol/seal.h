// Seals the frames of a store connection after the handshake.
//
// A seal is a MAC, appended to the payload, of the frame's number on this connection, its type and
// its payload. The key is derived from the job's secret and the transcript of the handshake (the
// hello and both nonces), one for each direction. So a relay that changes, repeats, omits, reorders
// or reflects a frame is detected, and frames of other connections are invalid.
#pragma once

#include <cstdint>
#include <string>

#include "backends/secret.h"
#include "backends/store/protocol/wire.h"

namespace backends {

inline constexpr std::size_t kSealBytes = 16;

// One direction of a connection. Without a key, frames pass unsealed.
class Seal {
 public:
  Seal() = default;
  explicit Seal(Secret key) : key_(std::move(key)) {}

  // Seals the next frame, as FrameWriter::finish() returned it.
  std::string close(const std::string& frame);
  // Verifies the next frame and removes its seal. Throws MalformedFrame.
  void open(Frame& frame);

 private:
  std::string next(std::string_view type_and_payload);

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
