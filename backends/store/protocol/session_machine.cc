// Implements the stages of the client's handshake.
#include "backends/store/protocol/session_machine.h"

#include "backends/store/protocol/settings.h"

namespace backends {

SessionMachine::SessionMachine(const Secret& secret, Hello hello, const std::string& nonce,
                               std::string peer)
    : secret_(secret),
      hello_([&] {
        hello.nonce = nonce;
        return std::move(hello);
      }()),
      peer_(std::move(peer)),
      output_(hello_frame(hello_)) {
  hello_payload_ = output_.substr(5);  // after the length and the type
}

void SessionMachine::received(std::string_view bytes) {
  parser_.append(bytes.data(), bytes.size());
  try {
    while (state_ == State::kRunning) {
      // A length is authenticated with its frame alone, after the whole of it has arrived. The
      // longest frame before the welcome is a refusal that names settings.
      std::optional<Frame> frame = parser_.next(
          stage_ == Stage::kChallenge ? kUnauthenticatedFrameBytes : kSettingsBytes + kSealBytes);
      if (!frame) return;
      seals_.to_client.open(*frame);
      handle(*frame);
    }
  } catch (const MalformedFrame&) {
    state_ = State::kNoStore;
  }
}

void SessionMachine::handle(const Frame& frame) {
  if (frame.type == FrameType::kRefuse || frame.type == FrameType::kFatal) {
    FrameReader in(frame.payload);
    const auto kind = static_cast<RefusalKind>(in.u8());
    refusal_.emplace(kind, in.text());
    if (!is_proved())
      refusal_->second = "the process at " + peer_ +
                         ", which has not proved that it is rank 0, refuses: " + refusal_->second;
    state_ = State::kRefused;
  } else if (stage_ == Stage::kChallenge) {
    on_challenge(frame);
  } else {
    on_answer(frame);
  }
}

void SessionMachine::on_challenge(const Frame& frame) {
  if (frame.type != FrameType::kChallenge || frame.payload.size() != kNonceBytes + kMacBytes)
    throw MalformedFrame();
  const std::string nonce = frame.payload.substr(0, kNonceBytes);
  const bool proved = equal_in_constant_time(frame.payload.substr(kNonceBytes),
                                             server_proof(secret_, hello_payload_, nonce));
  // The proof is also sent to a server without the secret: it reveals nothing, and rank 0 can
  // report which rank failed.
  output_ +=
      FrameWriter(FrameType::kProof).bytes(client_proof(secret_, hello_payload_, nonce)).finish();
  if (!proved) {
    state_ = State::kOtherSecret;
    return;
  }
  seals_ = make_seals(secret_, hello_payload_, nonce);
  stage_ = Stage::kAnswer;
}

void SessionMachine::on_answer(const Frame& frame) {
  if (frame.type == FrameType::kAskSettings) {
    output_ += seals_.to_server.close(settings_frame(hello_.settings));
  } else if (frame.type == FrameType::kWelcome) {
    peer_received_ = static_cast<std::uint64_t>(FrameReader(frame.payload).i64());
    state_ = State::kWelcome;
  } else {
    throw MalformedFrame();
  }
}

}  // namespace backends
