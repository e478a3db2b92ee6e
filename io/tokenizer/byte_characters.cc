// A byte is written as a character that can be seen: itself, if it is printable in Latin-1, or
// U+0100 + n for the n-th other byte.
#include "io/tokenizer/byte_characters.h"

#include <array>
#include <cstdint>

#include "io/base/text/utf8.h"

namespace io {
namespace {

constexpr std::uint32_t kCharacters = 0x100 + 68;  // 68 bytes are not printable

// Returns the bytes by character; -1: it stands for none.
std::array<std::int16_t, kCharacters> bytes_by_character() {
  std::array<std::int16_t, kCharacters> bytes{};
  bytes.fill(-1);
  std::uint32_t others = 0;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool shown = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    bytes[shown ? byte : 0x100 + others++] = static_cast<std::int16_t>(byte);
  }
  return bytes;
}

}  // namespace

std::optional<std::string> bytes_of_characters(std::string_view token) {
  static const auto bytes_of = bytes_by_character();
  std::string bytes;
  for (std::size_t i = 0; i < token.size();) {
    const base::Utf8Start start = base::utf8_start(static_cast<unsigned char>(token[i]));
    std::uint32_t character = static_cast<unsigned char>(token[i]);
    if (start.bytes == 2 && i + 1 < token.size())
      character = (character & 0x1F) << 6 | (static_cast<unsigned char>(token[i + 1]) & 0x3F);
    if (start.bytes == 0 || start.bytes > 2 || character >= kCharacters || bytes_of[character] < 0)
      return std::nullopt;
    bytes += static_cast<char>(bytes_of[character]);
    i += start.bytes;
  }
  return bytes;
}

}  // namespace io
