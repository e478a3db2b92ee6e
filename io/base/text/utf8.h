// Checks UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace base {

// The bytes that may follow the first byte of a character (RFC 3629, table of section 4).
struct Utf8Start {
  std::size_t bytes = 0;                  // of the character; 0: none begins like this
  unsigned least = 0x80, largest = 0xBF;  // its second byte
};
inline Utf8Start utf8_start(unsigned first) {
  if (first < 0x80) return {1};
  if (first < 0xC2 || first > 0xF4) return {};
  if (first < 0xE0) return {2};
  if (first < 0xF0) return {3, first == 0xE0 ? 0xA0u : 0x80u, first == 0xED ? 0x9Fu : 0xBFu};
  return {4, first == 0xF0 ? 0x90u : 0x80u, first == 0xF4 ? 0x8Fu : 0xBFu};
}

// Returns true if `text` is well-formed UTF-8 as in RFC 3629: no overlong forms, no surrogates, at
// most U+10FFFF.
inline bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    Utf8Start start = utf8_start(static_cast<unsigned char>(text[i]));
    if (start.bytes == 0 || start.bytes > text.size() - i) return false;
    for (std::size_t k = 1; k < start.bytes; ++k) {
      const unsigned byte = static_cast<unsigned char>(text[i + k]);
      if (byte < start.least || byte > start.largest) return false;
      start.least = 0x80, start.largest = 0xBF;
    }
    i += start.bytes;
  }
  return true;
}

}  // namespace base
