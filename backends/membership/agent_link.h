// The accepting end of a connection between agents: authenticates a process of the same job by the
// store's handshake (store/protocol/handshake.h), and verifies its sealed frames. The connecting
// end is a SessionMachine. Uses no clock and no socket.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "backends/store/protocol/handshake.h"
#include "backends/store/protocol/seal.h"

namespace backends {

class AcceptedLink {
 public:
  // `own`: the job, build and settings that the other side must match. `nonce`: random, kNonceBytes
  // long. `peer`: its address, for messages.
  AcceptedLink(const Secret& secret, const Hello& own, std::string nonce, std::string peer);

  // Takes bytes that have arrived. next() then returns the frames of an accepted process.
  void received(std::string_view bytes) { parser_.append(bytes.data(), bytes.size()); }
  std::optional<Frame> next();
  std::string take_output() { return std::exchange(output_, {}); }

  bool is_open() const { return stage_ == Stage::kOpen; }
  bool has_ended() const { return stage_ == Stage::kEnded; }
  // Returns why the process was rejected; "": it spoke another protocol.
  const std::string& refusal() const { return refusal_; }

 private:
  enum class Stage { kHello, kProof, kSettings, kOpen, kEnded };

  std::size_t longest_frame() const;
  void handle(const Frame& frame);  // throws MalformedFrame
  void on_hello(const Frame& frame);
  void on_proof(const Frame& frame);
  void on_settings(const Frame& frame);
  void send(const std::string& frame) { output_ += seals_.to_client.close(frame); }
  void refuse(RefusalKind kind, const std::string& text);

  const Secret& secret_;
  const Hello& own_;
  const std::string nonce_, peer_;
  Stage stage_ = Stage::kHello;
  Hello hello_;
  std::string hello_payload_, output_, refusal_;
  FrameParser parser_;
  Seals seals_;
};

// Returns e.g. "the process on host n7 with pid 42".
std::string process_text(const Hello& hello);

}  // namespace backends
