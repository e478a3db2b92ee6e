// Implements secrets with libsodium.
#include "backends/secret.h"

#include <sodium.h>

#include <utility>

#include "backends/backend_error.h"

namespace backends {
namespace {

void start_sodium() {
  if (sodium_init() < 0)
    throw AuthenticationError("libsodium failed to initialize: no source of randomness");
}

}  // namespace

Secret secret_from_hex(std::string_view text, const std::string& origin) {
  start_sodium();
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.remove_suffix(1);
  std::string key(text.size() / 2, '\0');
  std::size_t length = 0;
  const char* end = nullptr;
  if (sodium_hex2bin(reinterpret_cast<unsigned char*>(key.data()), key.size(), text.data(),
                     text.size(), nullptr, &length, &end) != 0 ||
      end != text.data() + text.size() || length < 16) {
    throw ConfigurationError("the secret of " + origin + " must be hexadecimal, 32 digits or more");
  }
  return {std::move(key), origin};
}

std::string random_bytes(std::size_t count) {
  start_sodium();
  std::string bytes(count, '\0');
  randombytes_buf(bytes.data(), count);
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  std::string hex(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(hex.data(), hex.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                 bytes.size());
  hex.pop_back();
  return hex;
}

std::string keyed_hash(const Secret& secret, std::string_view label, std::string_view message) {
  const auto bytes = [](std::string_view v) {
    return reinterpret_cast<const unsigned char*>(v.data());
  };
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, bytes(secret.key), secret.key.size());
  crypto_auth_hmacsha256_update(&state, bytes(label), label.size());
  crypto_auth_hmacsha256_update(&state, bytes(std::string_view("\0", 1)), 1);
  crypto_auth_hmacsha256_update(&state, bytes(message), message.size());
  std::string mac(kMacBytes, '\0');
  static_assert(kMacBytes == crypto_auth_hmacsha256_BYTES);
  crypto_auth_hmacsha256_final(&state, reinterpret_cast<unsigned char*>(mac.data()));
  return mac;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace backends
