// Records: known answers, and what a process that carries them can do to them.
#include "backends/secure/record_cipher.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace backends {
namespace {

const std::string kKey(RecordCipher::kKeyBytes, 'k');

std::vector<LinkCipher> ciphers_here() {
  std::vector<LinkCipher> ciphers{LinkCipher::kChaCha20Poly1305};
  if (fastest_cipher() == LinkCipher::kAes256Gcm) ciphers.push_back(LinkCipher::kAes256Gcm);
  return ciphers;
}

std::string record_of(RecordCipher& cipher, const std::string& text) {
  std::string record(text.size() + RecordCipher::kOverheadBytes, '\0');
  cipher.encrypt(text.data(), text.size(), record.data());
  return record;
}

// Returns "" if the record is not the expected one.
std::string text_of(RecordCipher& cipher, const std::string& record) {
  const auto bytes = cipher.read_header(record.data());
  if (!bytes || *bytes + RecordCipher::kOverheadBytes != record.size()) return "";
  std::string text(*bytes, '\0');
  return cipher.decrypt(record.data(), *bytes, text.data()) ? text : "";
}

std::string hex_of_body(LinkCipher which) {
  RecordCipher cipher(which, std::string(RecordCipher::kKeyBytes, '\0'));
  return to_hex(record_of(cipher, std::string(16, '\0')).substr(RecordCipher::kHeaderBytes, 16));
}

// The first record under a key of zeros encrypts zeros with a nonce of zeros.
TEST(RecordCipher, GivesKnownCiphertexts) {
  // RFC 8439, A.1, test vector 2.
  EXPECT_EQ(hex_of_body(LinkCipher::kChaCha20Poly1305), "9f07e7be5551387a98ba977c732d080d");
  if (fastest_cipher() != LinkCipher::kAes256Gcm)
    GTEST_SKIP() << "this processor cannot compute AES-256-GCM";
  // McGrew and Viega, The Galois/Counter Mode of Operation, test case 14.
  EXPECT_EQ(hex_of_body(LinkCipher::kAes256Gcm), "cea7403d4d606b6e074ec5d3baf39d18");
}

TEST(RecordCipher, RecordsPassInOrderAlsoInPlace) {
  for (const LinkCipher which : ciphers_here()) {
    RecordCipher sender(which, kKey), receiver(which, kKey);
    for (const std::string text : {"a", "gradients of layer1", ""}) {
      std::string record(RecordCipher::kHeaderBytes, '\0');
      record += text + std::string(RecordCipher::kTagBytes, '\0');
      sender.encrypt(record.data() + RecordCipher::kHeaderBytes, text.size(), record.data());
      ASSERT_EQ(receiver.read_header(record.data()), text.size());
      ASSERT_TRUE(
          receiver.decrypt(record.data(), text.size(), record.data() + RecordCipher::kHeaderBytes));
      EXPECT_EQ(record.substr(RecordCipher::kHeaderBytes, text.size()), text);
    }
    EXPECT_EQ(receiver.number(), 3u);
  }
}

TEST(RecordCipher, EveryChangedBitIsNoticed) {
  for (const LinkCipher which : ciphers_here()) {
    RecordCipher sender(which, kKey), receiver(which, kKey);
    const std::string record = record_of(sender, "sixteen bytes ..");
    for (std::size_t bit = 0; bit < 8 * record.size(); ++bit) {
      std::string changed = record;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      EXPECT_EQ(text_of(receiver, changed), "") << to_string(which) << ", bit " << bit;
    }
    EXPECT_EQ(text_of(receiver, record), "sixteen bytes ..");
  }
}

// A changed length is noticed by the header alone: nobody waits for bytes that do not come.
TEST(RecordCipher, AChangedLengthIsNoticedBeforeTheTextHasArrived) {
  RecordCipher sender(LinkCipher::kChaCha20Poly1305, kKey),
      receiver(LinkCipher::kChaCha20Poly1305, kKey);
  std::string record = record_of(sender, "text");
  EXPECT_EQ(receiver.read_header(record.data()), 4u);
  record[1] = 1;
  EXPECT_EQ(receiver.read_header(record.data()), std::nullopt);
}

TEST(RecordCipher, RepeatedMovedAndMissingRecordsAreNoticed) {
  for (const LinkCipher which : ciphers_here()) {
    RecordCipher sender(which, kKey), receiver(which, kKey), other(which, std::string(32, 'o'));
    const std::string first = record_of(sender, "first"), second = record_of(sender, "second");
    EXPECT_EQ(text_of(other, first), "") << "the key of another connection or direction";
    EXPECT_EQ(text_of(receiver, second), "");
    EXPECT_EQ(text_of(receiver, first), "first");
    EXPECT_EQ(text_of(receiver, first), "");
    EXPECT_EQ(text_of(receiver, second), "second");
  }
}

TEST(RecordCipher, TextsAreBoundToTheirNumberAndContext) {
  const Secret key{kKey, "test"};
  const std::string sealed = encrypt_text(key, 7, "type", "layer1.weight");
  EXPECT_EQ(sealed.find("weight"), std::string::npos);
  EXPECT_EQ(decrypt_text(key, 7, "type", sealed), "layer1.weight");
  EXPECT_EQ(decrypt_text(key, 8, "type", sealed), std::nullopt);
  EXPECT_EQ(decrypt_text(key, 7, "other", sealed), std::nullopt);
  EXPECT_EQ(decrypt_text(key, 7, "type", sealed.substr(0, 15)), std::nullopt);
}

}  // namespace
}  // namespace backends
