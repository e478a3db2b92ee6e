// Computes the keys and MACs of the seals.
#include "backends/store/protocol/seal.h"

namespace backends {

std::string Seal::next(std::string_view type_and_payload) {
  std::string message;
  message.reserve(8 + type_and_payload.size());
  for (int i = 0; i < 8; ++i) message.push_back(static_cast<char>(number_ >> (8 * i)));
  ++number_;
  return keyed_hash(key_, "frame", message.append(type_and_payload)).substr(0, kSealBytes);
}

std::string Seal::close(const std::string& frame) {
  if (key_.key.empty()) return frame;
  const std::string_view content = std::string_view(frame).substr(4);
  return FrameWriter(static_cast<FrameType>(content[0]))
      .bytes(content.substr(1))
      .bytes(next(content))
      .finish();
}

void Seal::open(Frame& frame) {
  if (key_.key.empty()) return;
  if (frame.payload.size() < kSealBytes) throw MalformedFrame();
  const std::string seal = frame.payload.substr(frame.payload.size() - kSealBytes);
  frame.payload.resize(frame.payload.size() - kSealBytes);
  if (!equal_in_constant_time(seal, next(static_cast<char>(frame.type) + frame.payload)))
    throw MalformedFrame();
}

Seals make_seals(const Secret& secret, const std::string& hello_payload,
                 const std::string& server_nonce) {
  const auto key = [&](const char* label) {
    return Seal({keyed_hash(secret, label, hello_payload + server_nonce), secret.origin});
  };
  return {key("engine store to server"), key("engine store to client")};
}

}  // namespace backends
