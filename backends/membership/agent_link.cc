// Implements the stages of the accepting end.
#include "backends/membership/agent_link.h"

#include "io/base/text/escape_text.h"

namespace backends {

std::string process_text(const Hello& hello) {
  return "host " + base::escape_text(hello.host) + ", pid " + std::to_string(hello.pid);
}

AcceptedLink::AcceptedLink(const Secret& secret, const Hello& own, std::string nonce,
                           std::string peer)
    : secret_(secret), own_(own), nonce_(std::move(nonce)), peer_(std::move(peer)) {}

std::size_t AcceptedLink::longest_frame() const {
  return stage_ == Stage::kOpen       ? kFrameBytes + kSealBytes
         : stage_ == Stage::kSettings ? kSettingsBytes + kSealBytes
                                      : kUnauthenticatedFrameBytes;
}

std::optional<Frame> AcceptedLink::next() {
  try {
    while (!has_ended()) {
      std::optional<Frame> frame = parser_.next(longest_frame());
      if (!frame) return std::nullopt;
      seals_.to_server.open(*frame);
      if (is_open()) return frame;
      handle(*frame);
    }
  } catch (const MalformedFrame&) {
    stage_ = Stage::kEnded;
  }
  return std::nullopt;
}

void AcceptedLink::handle(const Frame& frame) {
  if (stage_ == Stage::kHello) return on_hello(frame);
  if (stage_ == Stage::kProof) return on_proof(frame);
  on_settings(frame);
}

void AcceptedLink::on_hello(const Frame& frame) {
  if (frame.type != FrameType::kHello) throw MalformedFrame();
  hello_ = read_hello(frame.payload);
  if (hello_.version != own_.version)
    return refuse(RefusalKind::kMismatch, "protocol version " + std::to_string(own_.version) +
                                              " here (" + process_text(own_) + ") and " +
                                              std::to_string(hello_.version) + " at " + peer_);
  hello_payload_ = frame.payload;
  stage_ = Stage::kProof;
  send(FrameWriter(FrameType::kChallenge)
           .bytes(nonce_)
           .bytes(server_proof(secret_, hello_payload_, nonce_))
           .finish());
}

void AcceptedLink::on_proof(const Frame& frame) {
  if (frame.type != FrameType::kProof) throw MalformedFrame();
  if (!equal_in_constant_time(frame.payload, client_proof(secret_, hello_payload_, nonce_)))
    return refuse(RefusalKind::kAuthentication,
                  "a process at " + peer_ + std::string(kUnprovedText));
  seals_ = make_seals(secret_, hello_payload_, nonce_);
  const auto differ = [&](const char* what, const std::string& ours, const std::string& theirs) {
    return std::string(what) + " differs: \"" + ours + "\" at " + process_text(own_) + ", \"" +
           base::escape_text(theirs) + "\" at " + process_text(hello_);
  };
  if (hello_.job != own_.job)
    return refuse(RefusalKind::kOtherJob, differ("job id", own_.job, hello_.job));
  if (hello_.build != own_.build)
    return refuse(RefusalKind::kMismatch, differ("engine build", own_.build, hello_.build));
  if (hello_.settings_digest != own_.settings_digest) {
    stage_ = Stage::kSettings;
    return send(FrameWriter(FrameType::kAskSettings).finish());
  }
  stage_ = Stage::kOpen;
  send(welcome_frame(0));
}

void AcceptedLink::on_settings(const Frame& frame) {
  if (frame.type != FrameType::kSettings) throw MalformedFrame();
  const Settings theirs = read_settings(frame.payload);
  if (settings_digest(theirs) != hello_.settings_digest) throw MalformedFrame();
  refuse(RefusalKind::kMismatch,
         settings_difference(own_.settings, process_text(own_), theirs, process_text(hello_)));
}

void AcceptedLink::refuse(RefusalKind kind, const std::string& text) {
  send(refusal_frame(FrameType::kRefuse, kind, text));
  refusal_ = text;
  stage_ = Stage::kEnded;
}

}  // namespace backends
