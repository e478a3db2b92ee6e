// Implements records with libsodium.
#include "backends/secure/record_cipher.h"

#include <sodium.h>

#include <array>
#include <cstring>

#include "backends/backend_error.h"
#include "backends/secret.h"

namespace backends {
namespace {

constexpr std::size_t kLengthBytes = 4;
using Nonce = std::array<unsigned char, crypto_aead_chacha20poly1305_IETF_NPUBBYTES>;
static_assert(crypto_aead_aes256gcm_NPUBBYTES == std::tuple_size_v<Nonce>);

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* bytes_at(char* at) { return reinterpret_cast<unsigned char*>(at); }
const unsigned char* bytes_at(const char* at) { return reinterpret_cast<const unsigned char*>(at); }

Nonce nonce_of(std::uint64_t number) {
  Nonce nonce{};
  for (std::size_t i = 0; i < sizeof number; ++i)
    nonce[i] = static_cast<unsigned char>(number >> (8 * i));
  return nonce;
}

void start_ciphers() {
  if (sodium_init() < 0) throw Error("libsodium failed to initialize");
}

}  // namespace

LinkCipher fastest_cipher() {
  start_ciphers();
  return crypto_aead_aes256gcm_is_available() != 0 ? LinkCipher::kAes256Gcm
                                                   : LinkCipher::kChaCha20Poly1305;
}

struct RecordCipher::Keys {
  crypto_aead_aes256gcm_state aes;  // the expanded key
  std::array<unsigned char, kKeyBytes> text;
  std::array<unsigned char, crypto_shorthash_KEYBYTES> header;
  Keys() = default;
  ~Keys() { sodium_memzero(this, sizeof *this); }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;
};

RecordCipher::RecordCipher(LinkCipher cipher, const std::string& key)
    : cipher_(cipher), keys_(std::make_unique<Keys>()) {
  static_assert(kTagBytes == crypto_aead_aes256gcm_ABYTES &&
                kTagBytes == crypto_aead_chacha20poly1305_IETF_ABYTES);
  static_assert(kHeaderBytes == kLengthBytes + crypto_shorthash_BYTES);
  if (cipher == LinkCipher::kAes256Gcm && fastest_cipher() != cipher)
    throw Error("this processor cannot compute AES-256-GCM");
  start_ciphers();
  const std::string header = keyed_hash({key, ""}, "engine record header", "");
  std::memcpy(keys_->text.data(), key.data(), kKeyBytes);
  std::memcpy(keys_->header.data(), header.data(), keys_->header.size());
  if (cipher == LinkCipher::kAes256Gcm)
    crypto_aead_aes256gcm_beforenm(&keys_->aes, keys_->text.data());
}

RecordCipher::~RecordCipher() = default;

void RecordCipher::write_header(std::size_t bytes, char* header) const {
  std::array<unsigned char, sizeof number_ + kLengthBytes> hashed;
  for (std::size_t i = 0; i < sizeof number_; ++i)
    hashed[i] = static_cast<unsigned char>(number_ >> (8 * i));
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    hashed[sizeof number_ + i] = static_cast<unsigned char>(bytes >> (8 * i));
  std::memcpy(header, hashed.data() + sizeof number_, kLengthBytes);
  crypto_shorthash(bytes_at(header + kLengthBytes), hashed.data(), hashed.size(),
                   keys_->header.data());
}

void RecordCipher::encrypt(const char* text, std::size_t bytes, char* record) {
  write_header(bytes, record);
  const Nonce nonce = nonce_of(number_++);
  unsigned char* body = bytes_at(record + kHeaderBytes);
  unsigned char* tag = body + bytes;
  if (cipher_ == LinkCipher::kAes256Gcm) {
    crypto_aead_aes256gcm_encrypt_detached_afternm(body, tag, nullptr, bytes_at(text), bytes,
                                                   bytes_at(record), kHeaderBytes, nullptr,
                                                   nonce.data(), &keys_->aes);
  } else {
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(body, tag, nullptr, bytes_at(text), bytes,
                                                       bytes_at(record), kHeaderBytes, nullptr,
                                                       nonce.data(), keys_->text.data());
  }
}

std::optional<std::size_t> RecordCipher::read_header(const char* header) const {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    bytes |= static_cast<std::size_t>(bytes_at(header)[i]) << (8 * i);
  char expected[kHeaderBytes];
  write_header(bytes, expected);
  if (sodium_memcmp(header, expected, kHeaderBytes) != 0) return std::nullopt;
  return bytes;
}

bool RecordCipher::decrypt(const char* record, std::size_t bytes, char* text) {
  const Nonce nonce = nonce_of(number_);
  const unsigned char* body = bytes_at(record + kHeaderBytes);
  const unsigned char* tag = body + bytes;
  const int wrong = cipher_ == LinkCipher::kAes256Gcm
                        ? crypto_aead_aes256gcm_decrypt_detached_afternm(
                              bytes_at(text), nullptr, body, bytes, tag, bytes_at(record),
                              kHeaderBytes, nonce.data(), &keys_->aes)
                        : crypto_aead_chacha20poly1305_ietf_decrypt_detached(
                              bytes_at(text), nullptr, body, bytes, tag, bytes_at(record),
                              kHeaderBytes, nonce.data(), keys_->text.data());
  if (wrong != 0) return false;
  ++number_;
  return true;
}

std::string encrypt_text(const Secret& key, std::uint64_t number, std::string_view bound,
                         std::string_view text) {
  std::string sealed(text.size() + kTextTagBytes, '\0');
  crypto_aead_chacha20poly1305_ietf_encrypt(bytes_at(sealed.data()), nullptr, bytes_of(text),
                                            text.size(), bytes_of(bound), bound.size(), nullptr,
                                            nonce_of(number).data(), bytes_of(key.key));
  return sealed;
}

std::optional<std::string> decrypt_text(const Secret& key, std::uint64_t number,
                                        std::string_view bound, std::string_view sealed) {
  if (sealed.size() < kTextTagBytes) return std::nullopt;
  std::string text(sealed.size() - kTextTagBytes, '\0');
  if (crypto_aead_chacha20poly1305_ietf_decrypt(
          bytes_at(text.data()), nullptr, nullptr, bytes_of(sealed), sealed.size(), bytes_of(bound),
          bound.size(), nonce_of(number).data(), bytes_of(key.key)) != 0)
    return std::nullopt;
  return text;
}

}  // namespace backends
