// The secret that proves membership in a job, and the keyed hash made with it.
#pragma once

#include <cstddef>
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

}  // namespace backends
