// Encrypts and decrypts the records of one direction of a connection, and single texts.
//
// A record is a header, the ciphertext and its tag. The header has the length of the ciphertext
// (u32, little-endian) and a keyed hash (SipHash-2-4) of the record's number and that length, so
// that a receiver does not wait for bytes which a changed length announces. The tag (AES-256-GCM,
// or ChaCha20-Poly1305 of RFC 8439) covers header and text. The nonce is the record's number, so a
// record that was changed, repeated, moved or that follows a missing one is rejected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backends/secret.h"

namespace backends {

// Returns AES-256-GCM if this processor computes it, else ChaCha20-Poly1305.
LinkCipher fastest_cipher();

// Not thread-safe; allocates nothing after construction.
class RecordCipher {
 public:
  static constexpr std::size_t kKeyBytes = 32, kHeaderBytes = 12, kTagBytes = 16;
  static constexpr std::size_t kOverheadBytes = kHeaderBytes + kTagBytes;

  // `key`: kKeyBytes, used for this direction of this connection only. Throws Error if this
  // processor cannot compute the cipher. REQUIRES: not LinkCipher::kNone.
  RecordCipher(LinkCipher cipher, const std::string& key);
  ~RecordCipher();
  RecordCipher(const RecordCipher&) = delete;
  RecordCipher& operator=(const RecordCipher&) = delete;

  // Writes the next record of kOverheadBytes + bytes. `text` may be record + kHeaderBytes.
  void encrypt(const char* text, std::size_t bytes, char* record);
  // Returns the length in the next record's header; nullopt if it is not the header of that record.
  std::optional<std::size_t> read_header(const char* header) const;
  // Writes the text of the next record, of `bytes`, to `text`, which may be record + kHeaderBytes.
  // Returns false if the record is not the expected one; then `text` is not meaningful.
  [[nodiscard]] bool decrypt(const char* record, std::size_t bytes, char* text);

  std::uint64_t number() const { return number_; }  // number of the next record, from 0

 private:
  struct Keys;
  void write_header(std::size_t bytes, char* header) const;

  LinkCipher cipher_;
  std::unique_ptr<Keys> keys_;
  std::uint64_t number_ = 0;
};

inline constexpr std::size_t kTextTagBytes = RecordCipher::kTagBytes;
// Encrypts a short text with ChaCha20-Poly1305; returns the ciphertext and its tag, which also
// covers `bound`. REQUIRES: a key of kKeyBytes, with a new number for each text.
std::string encrypt_text(const Secret& key, std::uint64_t number, std::string_view bound,
                         std::string_view text);
// Returns nullopt unless `sealed` was made by encrypt_text() with the same key, number and `bound`.
std::optional<std::string> decrypt_text(const Secret& key, std::uint64_t number,
                                        std::string_view bound, std::string_view sealed);

}  // namespace backends
