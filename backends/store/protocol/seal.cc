// Computes the keys and the ciphertexts of the seals.
#include "backends/store/protocol/seal.h"

#include <optional>

namespace backends {

std::string Seal::close(const std::string& frame) {
  if (key_.key.empty()) return frame;
  const std::string_view content = std::string_view(frame).substr(4), type = content.substr(0, 1);
  return FrameWriter(static_cast<FrameType>(type[0]))
      .bytes(encrypt_text(key_, number_++, type, content.substr(1)))
      .finish();
}

void Seal::open(Frame& frame) {
  if (key_.key.empty()) return;
  const char type = static_cast<char>(frame.type);
  std::optional<std::string> text = decrypt_text(key_, number_, {&type, 1}, frame.payload);
  if (!text) throw MalformedFrame();
  ++number_;
  frame.payload = std::move(*text);
}

Seals make_seals(const Secret& secret, const std::string& hello_payload,
                 const std::string& server_nonce) {
  const auto key = [&](const char* label) {
    return Seal({keyed_hash(secret, label, hello_payload + server_nonce), secret.origin});
  };
  return {key("engine store to server"), key("engine store to client")};
}

}  // namespace backends
