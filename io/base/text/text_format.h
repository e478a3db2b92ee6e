// Text rules that several file formats share: UTF-8, and numbers that read back exactly.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

namespace io {

// Returns true if `text` is well-formed UTF-8 as in RFC 3629, table of section 4: no overlong
// forms, no surrogates, at most U+10FFFF.
inline bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
    };
    const unsigned first = byte(i), second = byte(i + 1);
    std::size_t length = 0;
    if (first < 0x80) length = 1;
    if (first >= 0xC2 && first <= 0xDF) length = 2;
    if (first >= 0xE0 && first <= 0xEF) length = 3;
    if (first >= 0xF0 && first <= 0xF4) length = 4;
    if (length == 0 || (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
      return false;
    for (std::size_t k = 1; k < length; ++k)
      if (byte(i + k) < 0x80 || byte(i + k) > 0xBF) return false;
    i += length;
  }
  return true;
}

// Returns the shortest decimal text that reads back as the same double. REQUIRES: finite.
inline std::string shortest_text(double value) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

}  // namespace io
