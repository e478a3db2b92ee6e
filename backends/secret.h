// The secret that proves membership in a job, the keyed hash made with it, and the ciphers of
// connections between ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace backends {

// At least 16 bytes; never printed.
struct Secret {
  std::string key;
  std::string origin;  // e.g. "ENGINE_SECRET" or a path; for messages
};

inline constexpr std::size_t kMacBytes = 32;
inline constexpr std::size_t kNonceBytes = 32;

// Returns the secret in a text, which may end with a newline. Throws AuthenticationError that names
// the origin if the text is not hexadecimal or has fewer than 32 digits.
Secret secret_from_hex(std::string_view text, const std::string& origin);

std::string random_bytes(std::size_t count);
std::string to_hex(std::string_view bytes);
// Returns the HMAC-SHA-256 (RFC 2104, FIPS 180-4) of label, a zero byte and message.
std::string keyed_hash(const Secret& secret, std::string_view label, std::string_view message);
[[nodiscard]] bool equal_in_constant_time(std::string_view a, std::string_view b);

// The choices of --encrypt.
enum class Encryption : std::uint8_t {
  kAuto,  // if an address of the job is public
  kOn,
  kOff,
};

enum class LinkCipher : std::uint32_t { kNone = 0, kAes256Gcm = 1, kChaCha20Poly1305 = 2 };

inline std::string to_string(Encryption encryption) {
  if (encryption == Encryption::kOn) return "on";
  return encryption == Encryption::kOff ? "off" : "auto";
}

inline std::string to_string(LinkCipher cipher) {
  switch (cipher) {
    case LinkCipher::kNone:
      return "none";
    case LinkCipher::kAes256Gcm:
      return "AES-256-GCM";
    case LinkCipher::kChaCha20Poly1305:
      return "ChaCha20-Poly1305";
  }
  return "cipher " + std::to_string(static_cast<std::uint32_t>(cipher));
}

}  // namespace backends
